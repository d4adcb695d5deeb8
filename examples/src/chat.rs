//! The `chat` example: a conversation, answer by answer.

use std::ffi::OsString;
use std::io::{self, BufRead};

use clap::Parser;
use slotstream::core::{CancelToken, ErrorKind};
use slotstream::text::{ChatOptions, Message};
use slotstream::{Engine, Error, Session, SessionOptions, TextOptions};

use crate::console::parse;
use crate::figures::{percent, rate, seconds, table};
use crate::{Console, Ended, EngineArguments, Failure, show_size};

/// What `/help` shows.
const COMMANDS: &str = "/reset forgets the conversation, /stats shows figures, /quit ends; \
                        Ctrl-C stops an answer";

/// Talks with a model whose experts stay on disk: a line is a message, the answer is written as it
/// comes.
///
/// The conversation is kept. Where it begins as before, only what is new is read again. Ctrl-C stops
/// the answer and nothing else; at the prompt it ends the program, as the end of the input does.
#[derive(Parser, Clone, Debug)]
#[command(name = "chat", version, allow_negative_numbers = true, after_help = COMMANDS)]
#[non_exhaustive]
pub struct Arguments {
    /// A system message
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, help_heading = "Conversation")]
    pub system: Option<String>,
    /// Most tokens of an answer
    #[arg(long, value_name = "N", default_value_t = 512, help_heading = "Conversation")]
    pub max_tokens: usize,
    /// Always choose the likeliest token [default: what the model recommends]
    #[arg(long, help_heading = "Sampling")]
    pub greedy: bool,
    /// Seed of the draws
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Sampling")]
    pub seed: u64,
    /// The engine.
    #[command(flatten)]
    pub engine: EngineArguments,
}

/// Runs the example with these arguments, the program's name first, and standard input.
///
/// # Errors
/// [`Failure`] says what and whose it is.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    console: &mut Console<'_>,
) -> Result<Ended, Failure> {
    run_with(arguments, console, &mut io::stdin().lock())
}

/// The same with another input.
///
/// # Errors
/// As [`run`].
pub fn run_with(
    arguments: impl IntoIterator<Item = OsString>,
    console: &mut Console<'_>,
    input: &mut dyn BufRead,
) -> Result<Ended, Failure> {
    let arguments: Arguments = parse(arguments)?;
    let model = arguments.engine.find_model()?;
    let builder = arguments.engine.builder(&model)?;
    let builder = builder.cancel(console.cancel.clone()).progress(console.load_progress());
    let mut chat = Chat::new(&builder.build()?, &arguments)?;
    console.line(COMMANDS)?;
    let mut line = String::new();
    loop {
        console.write("> ")?;
        console.interrupt.ends_now();
        line.clear();
        let read = input.read_line(&mut line);
        if read.map_err(|source| Failure::Input { source })? == 0 {
            console.line("")?;
            return Ok(Ended::Done);
        }
        match line.trim() {
            "" => {}
            "/quit" => return Ok(Ended::Done),
            "/help" => console.line(COMMANDS)?,
            "/reset" => chat.reset()?,
            "/stats" => console.line(&chat.stats())?,
            command if command.starts_with('/') => {
                console.line(&format!("{command} is no command: {COMMANDS}"))?;
            }
            message => chat.answer(message, console)?,
        }
        if console.cancel.is_cancelled() {
            return Ok(Ended::Interrupted);
        }
    }
}

/// A conversation.
struct Chat<'a> {
    arguments: &'a Arguments,
    engine: Engine,
    session: Session,
    turns: Vec<Message>,
    /// Tokens of the last prompt.
    prompt: usize,
}

impl<'a> Chat<'a> {
    fn new(engine: &Engine, arguments: &'a Arguments) -> Result<Self, Failure> {
        let session = session(engine, arguments)?;
        let turns = arguments.system.iter().map(|text| Message::system(&**text)).collect();
        let engine = engine.clone();
        Ok(Self { arguments, engine, session, turns, prompt: 0 })
    }

    fn reset(&mut self) -> Result<(), Failure> {
        self.session = session(&self.engine, self.arguments)?;
        self.turns.truncate(usize::from(self.arguments.system.is_some()));
        Ok(())
    }

    /// Answers a message. What goes wrong with one is told, and the conversation goes on without it.
    fn answer(&mut self, message: &str, console: &mut Console<'_>) -> Result<(), Failure> {
        let known = self.turns.len();
        self.turns.push(Message::user(message));
        let stop = CancelToken::new();
        console.interrupt.ends_only(stop.clone());
        self.session.set_cancel(stop);
        let mut text = String::new();
        let result = self.generate(console, &mut text);
        console.line("")?;
        match result {
            Ok(()) => {}
            Err(Failure::Engine(error)) if error.kind() == ErrorKind::Cancelled => {
                console.line("(stopped)")?;
            }
            Err(Failure::Engine(error)) if error.kind() == ErrorKind::User => {
                self.turns.truncate(known);
                return console.line(&format!("({error}; /reset begins anew)"));
            }
            Err(error) => return Err(error),
        }
        // What was said is said, whole or not.
        self.turns.push(Message::assistant(&*text));
        Ok(())
    }

    fn generate(&mut self, console: &mut Console<'_>, text: &mut String) -> Result<(), Failure> {
        let tokens = self.engine.chat_tokens(&self.turns, &ChatOptions::default())?;
        let stable = self.stable(&tokens)?;
        self.prompt = tokens.len();
        self.session.reset_metrics();
        // In two parts where the next prompt will not begin with all of this one: the end of the
        // first part is then a place to come back to.
        self.session.prompt(&tokens[..stable])?;
        if stable < tokens.len() {
            self.session.prefill(&tokens[stable..])?;
        }
        for piece in self.session.generate(&TextOptions::new(self.arguments.max_tokens))? {
            let piece = piece?;
            console.write(&piece.text)?;
            text.push_str(&piece.text);
        }
        Ok(())
    }

    /// How much of a prompt the one of the next turn will begin with: templates write the head of
    /// an answer in another way once the answer is there.
    fn stable(&self, tokens: &[u32]) -> Result<usize, Failure> {
        let mut turns = self.turns.clone();
        turns.push(Message::assistant("."));
        // A template that takes no such turn will say so when there is one.
        let Ok(next) = self.engine.chat_tokens(&turns, &ChatOptions::default()) else {
            return Ok(tokens.len());
        };
        Ok(tokens.iter().zip(&next).take_while(|(a, b)| a == b).count().max(1))
    }

    fn stats(&self) -> String {
        let metrics = self.session.metrics();
        table(&[
            ("tokens", format!("{} of {}", self.session.tokens().len(), self.engine.context())),
            (
                "last prompt",
                format!("{} tokens, of which {} were known", self.prompt, metrics.reused),
            ),
            ("first token", seconds(metrics.time_to_first_token)),
            ("decode", rate(metrics.decode_tok_s(), "tok/s")),
            ("hit rate", percent(metrics.decode.hit_rate())),
            ("bytes read", show_size(metrics.total().bytes_read)),
        ])
    }
}

fn session(engine: &Engine, arguments: &Arguments) -> Result<Session, Error> {
    let mut sampling = engine.recommended_sampling();
    if arguments.greedy {
        sampling.temperature = 0.0;
    }
    sampling.seed = arguments.seed;
    engine.session(SessionOptions::new().with_sampling(sampling))
}
