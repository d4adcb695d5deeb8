//! `--policies` of every example that has `--policy`: what there is to choose from.

use clap::{Arg, ArgAction, ArgMatches, Command};
use slotstream_cache::{DEFAULT_POLICY, PolicyInfo, policies};

use crate::Failure;

const FLAG: &str = "policies";
const SYNTAX: &str = "Policies. Options follow a colon: lfu:half-life=32, \
                      hot-pin:share=0.3+every=8, layer-local:lru.";
const AWARE: &str = "forecast-aware:POLICY: spares what a forecast has named, as long as there is another \
                     record; in replays only, and POLICY itself without recorded forecasts (--latency)";
const OPT: &str = "opt: Belady's policy, which knows the future; in replays only";

/// All policies with their options and defaults.
fn list() -> String {
    let known = policies().map(described);
    let entries = known
        .chain([AWARE, OPT].map(str::to_owned))
        .map(|entry| format!("  {}", entry.replace('\n', "\n  ")));
    format!("{SYNTAX}\n\n{}", entries.collect::<Vec<_>>().join("\n"))
}

/// One policy, with a mark at the one that an engine has unless told otherwise.
fn described(policy: PolicyInfo) -> String {
    let text = policy.to_string();
    if policy.name != DEFAULT_POLICY {
        return text;
    }
    text.replacen(": ", " (the default of an engine): ", 1)
}

/// A command with `--policy` gets `--policies`, and the list at the end of its `--help`.
pub(crate) fn offer(command: Command) -> Command {
    if command.get_arguments().all(|argument| argument.get_id() != "policy") {
        return command;
    }
    let flag = Arg::new(FLAG)
        .long(FLAG)
        .action(ArgAction::SetTrue)
        .help("List all policies with their options, and end");
    let after = command.get_after_help().map(|text| format!("{text}\n\n")).unwrap_or_default();
    command.arg(flag).after_long_help(format!("{after}{}", list()))
}

/// Ends the example with the list when the command line asks for it. The list is shown as
/// help is.
pub(crate) fn answer(matches: &ArgMatches) -> Result<(), Failure> {
    if !matches!(matches.try_get_one(FLAG), Ok(Some(true))) {
        return Ok(());
    }
    let shown = Command::new(FLAG).override_help(list() + "\n");
    shown.try_get_matches_from([FLAG, "--help"]).map(drop).map_err(Failure::Usage)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use clap::error::ErrorKind;

    use super::DEFAULT_POLICY;
    use crate::console::parse;
    use crate::{Failure, pool_view, replay};

    /// What is shown instead of a run.
    fn shown<A: Parser>(arguments: &[&str]) -> String {
        let arguments = ["example"].iter().chain(arguments).map(Into::into);
        match parse::<A>(arguments).map(drop) {
            Err(Failure::Usage(usage)) if usage.kind() == ErrorKind::DisplayHelp => {
                usage.to_string()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_policy_is_listed_with_its_options() {
        let list = shown::<replay::Arguments>(&["--policies"]);
        assert_eq!(list, shown::<pool_view::Arguments>(&["--policies"]));
        for policy in slotstream_cache::policies() {
            let mark =
                if policy.name == DEFAULT_POLICY { " (the default of an engine)" } else { "" };
            assert!(
                list.contains(&format!("\n  {}{mark}: ", policy.name)) || policy.combines,
                "{policy}"
            );
            for option in policy.options {
                assert!(list.contains(&format!("{}={}", option.key, option.default)), "{list}");
            }
        }
        for name in ["layer-local:POLICY", "forecast-aware:POLICY", "opt"] {
            assert!(list.contains(&format!("\n  {name}: ")), "{list}");
        }
        let geometry = slotstream_core::Geometry::new(2, 8, 2).expect("legal");
        let requests = slotstream_replay::Requests::new(geometry);
        for name in ["forecast-aware:lru", "opt"] {
            assert!(slotstream_replay::named_policy(name, &requests).is_ok(), "{name}");
        }
        let help = shown::<replay::Arguments>(&["--help"]);
        assert!(help.contains("--policies") && help.contains("\n  layer-local:POLICY: "), "{help}");
        assert!(help.contains("gap closed: "), "what stood below the options stays: {help}");
        let short = shown::<replay::Arguments>(&["-h"]);
        assert!(short.contains("--policies") && !short.contains("layer-local:POLICY: "), "{short}");
    }

    #[test]
    fn a_command_without_policies_lists_none() {
        #[derive(Parser, Debug)]
        struct None {}

        let refused = parse::<None>(["example", "--policies"].map(Into::into)).unwrap_err();
        assert_eq!(refused.exit_code(), 2);
    }

    #[test]
    fn the_rest_of_the_line_is_still_checked() {
        let line = ["example", "--policies", "--slots", "0"].map(Into::into);
        assert_eq!(parse::<replay::Arguments>(line).map(drop).unwrap_err().exit_code(), 2);
        let line = ["example", "--policy", "lru"].map(Into::into);
        let parsed = parse::<replay::Arguments>(line).expect("an ordinary line");
        assert_eq!(parsed.policy, ["lru"]);
    }
}
