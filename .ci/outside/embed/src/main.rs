//! Continues a text with the model in a folder: `outside-embed FOLDER`. The last line has the
//! tokens.

use slotstream::{Engine, SessionOptions, Sizing, TextOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args_os().nth(1).ok_or("which folder is the model in?")?;
    let engine = Engine::builder(folder).sizing(Sizing::Share(0.3)).build()?;
    println!("{}", engine.plan());

    let mut session = engine.session(SessionOptions::new())?; // greedy
    session.prefill_text("CHAPTER II\n\nMr. Darcy ")?;
    for piece in session.generate(&TextOptions::new(32))? {
        print!("{}", piece?.text);
    }
    println!("\nhit rate {:?}", session.metrics().decode.hit_rate());
    println!("tokens {:?}", session.generated());
    Ok(())
}
