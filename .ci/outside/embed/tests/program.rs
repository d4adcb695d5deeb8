//! The program, run.

use std::process::Command;

#[test]
fn its_tokens_are_those_of_the_example() {
    let expected = std::env::var("TOKENS").expect("TOKENS holds the tokens of `generate`");
    let folder = std::env::var_os("MODEL").expect("MODEL names the folder of a model");
    let output = Command::new(env!("CARGO_BIN_EXE_outside-embed")).arg(folder).output().unwrap();
    let (stdout, stderr) = (output.stdout, output.stderr);
    let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8_lossy(&stderr));
    assert!(output.status.success(), "{stderr}");
    let last = stdout.lines().last().unwrap_or_default();
    let tokens = last.strip_prefix("tokens [").and_then(|rest| rest.strip_suffix(']'));
    let numbers = |list: &str| -> Vec<u32> {
        list.split(',').map(|number| number.trim().parse().unwrap()).collect()
    };
    assert_eq!(tokens.map(numbers), Some(numbers(&expected)), "{stdout}");
}
