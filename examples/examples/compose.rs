//! The parts wired by hand: checkpoint, reader, read lanes, pool with policy, n-gram store and
//! graph, each from its own crate and without `Engine`. Generates the tokens that
//! `generate` does; `cargo run --release --example compose -- --help` lists the flags.

use std::error::Error;
use std::io::Write;
use std::iter::{once, successors};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use slotstream::text::Tokenizer;
use slotstream_cache::parse_policy;
use slotstream_candle::{HostOps, Ops};
use slotstream_checkpoint::Checkpoint;
use slotstream_core::{ExpertKey, Extent, PassId, Phase, ReadQueue, SessionId, Step};
use slotstream_experts::{RecordIndex, StreamingExperts};
use slotstream_io::{LaneQueue, ReaderKind, open_reader};
use slotstream_kernels::Cpu;
use slotstream_ngram::NgramStore;
use slotstream_qwen::{Pass, QwenModel, State, to_host};

/// Generates text with an engine put together from its parts.
#[derive(Parser)]
#[command(name = "compose", version)]
struct Arguments {
    /// Folder of the model
    #[arg(long, default_value = "examples/models/tiny-moe", env = "SLOTSTREAM_MODEL")]
    model: PathBuf,
    /// Text to continue
    #[arg(long, default_value = "CHAPTER II\n\nMr. Darcy ")]
    prompt: String,
    /// Most tokens to generate
    #[arg(long, default_value_t = 48)]
    max_tokens: usize,
    /// Slots of the pool
    #[arg(long, default_value_t = 201)]
    slots: usize,
    /// Eviction policy: one of those that `generate --policies` lists
    #[arg(long, default_value = "clock")]
    policy: String,
    /// Print the token ids and nothing else
    #[arg(long)]
    ids: bool,
}

/// Where the records lie: what the streaming experts need to know of a checkpoint.
#[derive(Debug)]
struct Records(Arc<Checkpoint>);

impl RecordIndex for Records {
    fn pieces(&self, key: ExpertKey) -> Option<[Extent; 9]> {
        self.0.expert_pieces(key)
    }
}

/// What one sequence needs to run a pass.
struct Sequence {
    model: QwenModel,
    experts: StreamingExperts,
    ngram: Option<NgramStore>,
    state: State,
    passes: u64,
}

impl Sequence {
    /// Runs the next tokens; the logits after the last one.
    fn run(&mut self, tokens: &[u32]) -> Result<Vec<f32>, Box<dyn Error>> {
        self.passes += 1;
        let step = Step {
            pass: PassId::new(self.passes),
            phase: if self.passes == 1 { Phase::Prefill } else { Phase::Decode },
            session: SessionId::new(0),
            position: self.state.position(),
            tokens,
        };
        let (pass, ngram) = (Pass::new(step), self.ngram.as_mut());
        let output = self.model.forward(&mut self.state, &pass, &mut self.experts, ngram)?;
        Ok(to_host(&output.logits.ok_or("the last row's logits were asked for")?)?)
    }
}

fn wire(arguments: &Arguments) -> Result<(Arc<Checkpoint>, Sequence), Box<dyn Error>> {
    let checkpoint = Arc::new(Checkpoint::open(&arguments.model)?);
    let reader = open_reader(ReaderKind::Auto, checkpoint.files())?;
    let threads = std::thread::available_parallelism()?.get();
    let ops: Arc<dyn Ops> = Arc::new(HostOps::new(Arc::new(Cpu::new(threads)?)));
    let model = QwenModel::builder(&checkpoint, &*reader).load(Arc::clone(&ops))?;

    let queue: Arc<dyn ReadQueue> = Arc::new(LaneQueue::new(reader, 8)?);
    let (geometry, layout) = (checkpoint.geometry(), checkpoint.record_layout().clone());
    let experts = StreamingExperts::builder(geometry, layout, arguments.slots)
        .with_policy(parse_policy(&arguments.policy)?)
        .build(Arc::new(Records(Arc::clone(&checkpoint))), Arc::clone(&queue), ops)?;
    let ngram = checkpoint.ngram().map(|plan| NgramStore::new(plan, 4096, queue)).transpose()?;
    let state = model.new_state(4096, 0)?;
    Ok((checkpoint, Sequence { model, experts, ngram, state, passes: 0 }))
}

/// The first of the largest.
fn greedy(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (token, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = token;
        }
    }
    best as u32
}

fn main() -> ExitCode {
    let Err(error) = run(&Arguments::parse()) else { return ExitCode::SUCCESS };
    let causes = successors(error.source(), |error| Error::source(*error));
    let whole: Vec<String> =
        once(error.to_string()).chain(causes.map(ToString::to_string)).collect();
    // Where standard error cannot be written there is nobody to tell.
    drop(writeln!(std::io::stderr(), "error: {}", whole.join(": ")));
    ExitCode::FAILURE
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let (checkpoint, mut sequence) = wire(arguments)?;
    let path = arguments.model.join("tokenizer.json");
    let tokenizer = Tokenizer::load(&path, checkpoint.config().vocab_size)?;

    let mut logits = sequence.run(&tokenizer.encode(&arguments.prompt, false)?)?;
    let mut tokens = Vec::new();
    while tokens.len() < arguments.max_tokens {
        let token = greedy(&logits);
        tokens.push(token);
        if checkpoint.generation().eos_token_ids.contains(&token) {
            break;
        }
        logits = sequence.run(&[token])?;
    }

    let mut out = std::io::stdout().lock();
    if arguments.ids {
        writeln!(out, "{tokens:?}")?;
    } else {
        writeln!(out, "{}{}", arguments.prompt, tokenizer.decode(&tokens, true)?)?;
        let decode = sequence.experts.pool().counters().decode;
        writeln!(out, "{} of {} records were resident", decode.hits, decode.hits + decode.misses)?;
    }
    Ok(())
}
