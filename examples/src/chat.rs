//! The `chat` example: a conversation, answer by answer.

use std::ffi::OsString;
use std::io::{self, BufRead, Read};
use std::path::Path;

use clap::Parser;
use serde_json::Value;
use slotstream::core::{CancelToken, ErrorKind};
use slotstream::text::{ChatOptions, Message};
use slotstream::{Engine, Error, FinishReason, Session, SessionOptions, TextOptions};

use crate::console::parse;
use crate::figures::{count, percent, rate, seconds, table};
use crate::outputs::{self, OutputFile, SESSION, unfinished};
use crate::prompt::Room;
use crate::{Console, Ended, EngineArguments, Failure, show_size};

/// What `/help` shows.
const COMMANDS: &str = "/reset forgets the conversation, /fork remembers where it is, /back returns \
                        there, /save FILE and /load FILE keep it, /stats shows figures, /quit ends; \
                        Ctrl-C stops an answer";

/// Longest line that is read, in bytes.
const MOST_LINE: usize = 1 << 20;

/// Talks with a model whose experts stay on disk: a line is a message, the answer is written as it
/// comes.
///
/// The conversation is kept. Of each prompt only what is new runs. /save FILE writes the conversation
/// with all that the model has read of it, and /load FILE goes on with it, in another run as well.
/// Ctrl-C stops the answer and nothing else; at the prompt it ends the program, as the end of the
/// input does.
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
    /// Places of the conversation to come back to without reading it again; each costs memory
    #[arg(long, value_name = "N", default_value_t = 4, help_heading = "Conversation")]
    pub checkpoints: usize,
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
    let builder = arguments.engine.builder(&model, &console.cancel)?;
    let builder = builder.progress(console.load_progress()).checkpoints(arguments.checkpoints);
    let mut chat = Chat::new(&builder.build()?, &arguments)?;
    console.line(COMMANDS)?;
    let mut line = Vec::new();
    loop {
        console.write("> ")?;
        let Some(read) = console.next(|| read_line(input, &mut line)) else {
            return Ok(Ended::Interrupted);
        };
        let left_out = read.map_err(|source| Failure::Input { source })?;
        if line.is_empty() {
            console.line("")?;
            return Ok(Ended::Done);
        }
        match std::str::from_utf8(&line) {
            _ if left_out > 0 => {
                let len = line.len() + left_out;
                console.line(&format!(
                    "(left out: that line has {len} bytes, and {MOST_LINE} are the most that a line may \
                     have: write a shorter one)"
                ))?;
            }
            Ok(line) if line.trim() == "/quit" => return Ok(Ended::Done),
            Ok(line) => chat.hear(line.trim(), console)?,
            Err(error) => {
                let at = error.valid_up_to() + 1;
                console.line(&format!("(left out: byte {at} of that line is not UTF-8)"))?;
            }
        }
        if console.cancel.is_cancelled() {
            return Ok(Ended::Interrupted);
        }
    }
}

/// Reads a line to its end and keeps no more of it than [`MOST_LINE`] bytes; gives how many were not kept.
/// Nothing is kept at the end of the input.
fn read_line(input: &mut dyn BufRead, line: &mut Vec<u8>) -> io::Result<usize> {
    line.clear();
    (&mut *input).take(MOST_LINE as u64).read_until(b'\n', line)?;
    if line.len() < MOST_LINE || line.ends_with(b"\n") { Ok(0) } else { input.skip_until(b'\n') }
}

/// A conversation.
struct Chat<'a> {
    arguments: &'a Arguments,
    engine: Engine,
    session: Session,
    turns: Vec<Message>,
    /// Places to return to.
    aside: Vec<(Session, Vec<Message>)>,
    /// Tokens of the last prompt; none where this session has had none.
    prompt: Option<usize>,
}

impl<'a> Chat<'a> {
    fn new(engine: &Engine, arguments: &'a Arguments) -> Result<Self, Failure> {
        let turns = opening(arguments);
        if !turns.is_empty() {
            check_system(engine, &turns)?;
        }
        let session = session(engine, arguments)?;
        let engine = engine.clone();
        Ok(Self { arguments, engine, session, turns, aside: Vec::new(), prompt: None })
    }

    /// Does what a line says.
    fn hear(&mut self, line: &str, console: &mut Console<'_>) -> Result<(), Failure> {
        let (command, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let path = Path::new(rest.trim());
        let done = match command {
            "" => return Ok(()),
            "/help" => return console.line(COMMANDS),
            "/stats" => return console.line(&self.stats()),
            "/save" | "/load" if rest.is_empty() => {
                return console.line(&format!("({command} needs the name of a file)"));
            }
            "/reset" => self.reset().map(|()| None),
            "/fork" => self.fork().map(Some),
            "/back" => Ok(Some(self.back())),
            "/save" => self.save(path).map(Some),
            "/load" => self.load(path).map(Some),
            command if command.starts_with('/') => {
                let begin: String = command.chars().take(40).collect();
                return console.line(&format!("{begin} is no command: {COMMANDS}"));
            }
            _ => return self.answer(line, console),
        };
        match done {
            Ok(Some(words)) => console.line(&format!("({words})")),
            Ok(None) => Ok(()),
            // Whatever a command could not do, the conversation is as it was.
            Err(error) => console.line(&format!("({})", self.told(&error))),
        }
    }

    /// What went wrong, and what helps in a conversation.
    fn told(&self, error: &Error) -> String {
        let Error::State { needed, held, limit, .. } = error else { return in_words(error) };
        let [needed, held, limit] = [needed, held, limit].map(|bytes| show_size(*bytes));
        let helps = match self.aside.len() {
            0 => String::new(),
            places => format!(
                "/back gives up the last of {}, /reset all of them; or ",
                count(places as u64, "remembered place")
            ),
        };
        format!(
            "no memory: {needed} more are needed, and {held} of the {limit} that are planned for \
             conversations are held: {helps}start with more --memory, or with a shorter --context"
        )
    }

    fn reset(&mut self) -> Result<(), Error> {
        self.aside.clear();
        let session = session(&self.engine, self.arguments)?;
        self.go_on(session, opening(self.arguments));
        Ok(())
    }

    /// Goes on with another session, which has had no prompt yet.
    fn go_on(&mut self, session: Session, turns: Vec<Message>) {
        (self.session, self.turns, self.prompt) = (session, turns, None);
    }

    fn fork(&mut self) -> Result<String, Error> {
        let fork = self.session.fork()?;
        self.aside.push((fork, self.turns.clone()));
        Ok(format!("remembered; /back returns here, {} in all", self.aside.len()))
    }

    fn back(&mut self) -> String {
        let Some((session, turns)) = self.aside.pop() else {
            return "there is nothing to go back to: /fork remembers a place".to_owned();
        };
        self.go_on(session, turns);
        format!("back at {}", messages(&self.turns))
    }

    fn save(&mut self, path: &Path) -> Result<String, Error> {
        let part = unfinished(path);
        let session = |path| OutputFile { option: "/save", path, kind: SESSION };
        let inputs = self.arguments.engine.inputs(self.engine.checkpoint().folder());
        if let Err(failure) = outputs::check(&[session(path), session(&part)], &inputs) {
            return Ok(in_words(&failure));
        }
        // An answer that was stopped has set its token.
        self.session.set_cancel(CancelToken::new());
        let turns = Value::from_iter(self.turns.iter().cloned());
        self.session.set_note(turns.to_string())?;
        let bytes = self.session.save(path)?;
        Ok(format!("{} in {}, {}", messages(&self.turns), path.display(), show_size(bytes)))
    }

    fn load(&mut self, path: &Path) -> Result<String, Error> {
        let session = self.engine.load_session(path)?;
        let Ok(turns) = serde_json::from_slice::<Vec<Message>>(session.note()) else {
            let path = path.display();
            return Ok(format!("{path} holds a session and no conversation: it was not loaded"));
        };
        self.go_on(session, turns);
        self.aside.clear();
        Ok(format!("{}, {} tokens", messages(&self.turns), self.session.tokens().len()))
    }

    /// Answers a message. What goes wrong with one is told, and the conversation goes on without it.
    fn answer(&mut self, message: &str, console: &mut Console<'_>) -> Result<(), Failure> {
        let known = self.turns.len();
        self.turns.push(Message::user(message));
        let tokens = match self.tokens(message) {
            Ok(tokens) => tokens,
            Err(words) => {
                self.turns.truncate(known);
                return console.line(&format!("({words})"));
            }
        };
        self.session.set_cancel(console.interruptible());
        let mut text = String::new();
        let result = self.generate(&tokens, console, &mut text);
        console.line("")?;
        match result {
            Ok(end) => end.map_or(Ok(()), |words| console.line(&format!("({words})")))?,
            Err(Failure::Engine(error)) if error.kind() == ErrorKind::Cancelled => {
                console.line("(stopped)")?;
            }
            Err(Failure::Engine(error)) if error.kind() == ErrorKind::User => {
                self.turns.truncate(known);
                let why = self.told(&error);
                return console.line(&format!("(the message was left out: {why})"));
            }
            Err(error) => return Err(error),
        }
        // What was said is said, whole or not.
        self.turns.push(Message::assistant(&*text));
        Ok(())
    }

    /// Tokens of the conversation, where they leave room for an answer; else why not, and what helps.
    fn tokens(&self, message: &str) -> Result<Vec<u32>, String> {
        let options = ChatOptions::default();
        let tokens = self.engine.chat_tokens(&self.turns, &options).map_err(|e| in_words(&e))?;
        let context = self.engine.context();
        if tokens.len() < context {
            return Ok(tokens);
        }
        let mut alone = opening(self.arguments);
        alone.push(Message::user(message));
        let alone = self.engine.chat_tokens(&alone, &options).map_err(|e| in_words(&e))?.len();
        let (tokens, longest) = (tokens.len(), self.engine.checkpoint().config());
        let longest = longest.max_position_embeddings;
        Err(if alone < context {
            format!(
                "with this message the conversation takes {tokens} tokens of {context}, which leaves \
                 no room for an answer; it was left out: /reset begins anew"
            )
        } else if context < longest {
            format!(
                "this message alone takes {alone} tokens, and the context has {context}; it was left \
                 out: write a shorter one, or start with a --context of up to {longest}"
            )
        } else {
            format!(
                "this message alone takes {alone} tokens, and the model reads {longest} at most; it \
                 was left out: write a shorter one"
            )
        })
    }

    /// Writes an answer, and says why it ended where that is not plain to see.
    fn generate(
        &mut self,
        tokens: &[u32],
        console: &mut Console<'_>,
        text: &mut String,
    ) -> Result<Option<String>, Failure> {
        let stable = self.stable(tokens);
        self.prompt = Some(tokens.len());
        self.session.reset_metrics();
        // In two parts where the next prompt will not begin with all of this one: the end of the
        // first part is then a place to come back to.
        self.session.prompt(&tokens[..stable])?;
        if stable < tokens.len() {
            self.session.prefill(&tokens[stable..])?;
        }
        let most = self.arguments.max_tokens;
        let mut pieces = self.session.generate(&TextOptions::new(most))?;
        for piece in &mut pieces {
            let piece = piece?;
            console.write(&piece.text)?;
            text.push_str(&piece.text);
        }
        Ok(match pieces.finish_reason() {
            Some(FinishReason::Length) => {
                Some(format!("cut after {most} tokens: --max-tokens allows no more"))
            }
            Some(FinishReason::Context) => {
                let context = self.engine.context();
                Some(format!(
                    "cut: all {context} tokens of the context are used; /reset begins anew"
                ))
            }
            _ => None,
        })
    }

    /// How much of a prompt the one of the next turn will begin with: templates write the head of
    /// an answer in another way once the answer is there.
    fn stable(&self, tokens: &[u32]) -> usize {
        let mut turns = self.turns.clone();
        turns.push(Message::assistant("."));
        // A template that takes no such turn will say so when there is one.
        let Ok(next) = self.engine.chat_tokens(&turns, &ChatOptions::default()) else {
            return tokens.len();
        };
        tokens.iter().zip(&next).take_while(|(a, b)| a == b).count().max(1)
    }

    fn stats(&self) -> String {
        let metrics = self.session.metrics();
        let (context, checkpoints) = (self.engine.context(), self.session.checkpoints());
        let prompt = self.prompt.map_or("none yet".to_owned(), |tokens| {
            format!("{tokens} tokens, of which {} were known", metrics.reused)
        });
        let mut rows = vec![
            ("messages", self.turns.len().to_string()),
            ("tokens", format!("{} of {context}", self.session.tokens().len())),
            ("checkpoints", format!("{checkpoints} of {}", self.arguments.checkpoints)),
            ("remembered places", self.aside.len().to_string()),
            ("last prompt", prompt),
        ];
        // Of a session that has just begun, or was gone back to, there is nothing else to tell.
        if self.prompt.is_some() {
            rows.extend([
                ("last answer", count(metrics.generated, "token")),
                ("first token", seconds(metrics.time_to_first_token)),
                ("decode", rate(metrics.decode_tok_s(), "tok/s")),
                ("hit rate", percent(metrics.decode.hit_rate())),
                ("bytes read", show_size(metrics.total().bytes_read)),
                ("io wait", format!("{:.3} s", metrics.total().io_wait.as_secs_f64())),
            ]);
        }
        table(&rows)
    }
}

/// An error and its causes in one line.
fn in_words(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        words += &format!(": {cause}");
        source = cause.source();
    }
    words
}

/// What a conversation begins with.
fn opening(arguments: &Arguments) -> Vec<Message> {
    arguments.system.iter().map(|text| Message::system(&**text)).collect()
}

/// Refuses a system message that leaves no room for a message and an answer.
fn check_system(engine: &Engine, opening: &[Message]) -> Result<(), Failure> {
    let shortest = [opening, &[Message::user(".")]].concat();
    let tokens = engine.chat_tokens(&shortest, &ChatOptions::default())?.len();
    Room::new(engine.checkpoint(), engine.context()).check_system(tokens)
}

/// How many messages there are.
fn messages(turns: &[Message]) -> String {
    count(turns.len() as u64, "message")
}

fn session(engine: &Engine, arguments: &Arguments) -> Result<Session, Error> {
    let mut sampling = engine.recommended_sampling();
    if arguments.greedy {
        sampling.temperature = 0.0;
    }
    sampling.seed = arguments.seed;
    engine.session(SessionOptions::new().with_sampling(sampling))
}
