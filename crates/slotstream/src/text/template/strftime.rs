//! `strftime_now(format)`: the date for templates that tell the model what day it is.

use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::{Error, ErrorKind};

const DAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The current time in UTC. transformers takes local time; a library that reads time zones only
/// for this is not worth its weight.
pub(super) fn strftime_now(format: String) -> Result<String, Error> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    strftime(now.map_or(0, |since| since.as_secs()), &format)
}

/// A time in seconds since 1970 by the codes of C's `strftime`, in English.
pub(super) fn strftime(seconds: u64, format: &str) -> Result<String, Error> {
    let days = seconds / 86_400;
    let (year, month, day) = date(days);
    let (hour, minute) = (seconds / 3600 % 24, seconds / 60 % 60);
    let weekday = DAYS[((days + 3) % 7) as usize];
    let month_name = MONTHS[month as usize - 1];
    let mut out = String::new();
    let mut rest = format.chars();
    while let Some(character) = rest.next() {
        if character != '%' {
            out.push(character);
            continue;
        }
        let mut code = rest.next();
        let bare = code == Some('-');
        if bare {
            code = rest.next();
        }
        let number = |value: u64, width: usize| {
            let width = if bare { 1 } else { width };
            format!("{value:0width$}")
        };
        out.push_str(&match code {
            Some('Y') => number(year, 4),
            Some('y') => number(year % 100, 2),
            Some('m') => number(month, 2),
            Some('d') => number(day, 2),
            Some('j') => number(days - days_before(year) + 1, 3),
            Some('H') => number(hour, 2),
            Some('I') => number((hour + 11) % 12 + 1, 2),
            Some('M') => number(minute, 2),
            Some('S') => number(seconds % 60, 2),
            Some('p') => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            Some('A') => weekday.to_owned(),
            Some('a') => weekday[..3].to_owned(),
            Some('B') => month_name.to_owned(),
            Some('b') => month_name[..3].to_owned(),
            Some('%') => "%".to_owned(),
            other => {
                let code = other.map(String::from).unwrap_or_default();
                let detail = format!("strftime_now: the code %{code} is not supported");
                return Err(Error::new(ErrorKind::InvalidOperation, detail));
            }
        });
    }
    Ok(out)
}

/// Days from 1970 to the first of January of `year`.
const fn days_before(year: u64) -> u64 {
    let past = year - 1;
    365 * (year - 1970) + (past / 4 - past / 100 + past / 400)
        - (1969 / 4 - 1969 / 100 + 1969 / 400)
}

/// Year, month and day of a day counted from 1970.
fn date(days: u64) -> (u64, u64, u64) {
    let mut year = 1970 + days / 366;
    while days >= days_before(year + 1) {
        year += 1;
    }
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let lengths = [31, 28 + u64::from(leap), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut day = days - days_before(year);
    let mut month = 1;
    for length in lengths {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    (year, month, day + 1)
}
