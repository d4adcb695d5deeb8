//! Stop strings over the borders of pieces.

#[cfg(test)]
pub(in crate::text) mod tests;

use super::TextError;

/// Ends a text at the first stop string in it, whatever the pieces it arrives in.
///
/// The stop string that is complete first ends the text; of several complete at the same
/// character the longest, which begins first. It is cut off exactly: nothing of it, and nothing
/// after it, is given out. Until then the longest end of the text that could still become a stop
/// string is held back.
#[derive(Clone, Debug)]
pub struct StopMatcher {
    stops: Vec<String>,
    /// Text not given out yet, after `given` bytes that the last call lent to its caller.
    held: String,
    given: usize,
    matched: Option<usize>,
}

impl StopMatcher {
    /// A matcher for these strings; without any, text passes as it comes.
    ///
    /// # Errors
    /// [`TextError::EmptyStop`] for an empty string.
    pub fn new<S: Into<String>>(stops: impl IntoIterator<Item = S>) -> Result<Self, TextError> {
        let stops: Vec<String> = stops.into_iter().map(Into::into).collect();
        if let Some(position) = stops.iter().position(String::is_empty) {
            return Err(TextError::EmptyStop { position });
        }
        Ok(Self { stops, held: String::new(), given: 0, matched: None })
    }

    /// Takes the next piece; returns the text that may be given out now.
    ///
    /// After a match all further pieces are ignored.
    pub fn push(&mut self, piece: &str) -> &str {
        self.held.drain(..self.given);
        self.given = 0;
        if self.matched.is_none() {
            self.held.push_str(piece);
            self.given = match self.first_match() {
                Some((stop, start)) => {
                    self.matched = Some(stop);
                    self.held.truncate(start);
                    start
                }
                None => self.held.len() - self.hold_back(),
            };
        }
        &self.held[..self.given]
    }

    /// The text has ended without more pieces: gives out what was held back.
    pub fn finish(&mut self) -> &str {
        self.held.drain(..self.given);
        self.given = self.held.len();
        &self.held
    }

    /// The stop string that ended the text.
    #[must_use]
    pub fn matched(&self) -> Option<&str> {
        self.matched.map(|stop| self.stops[stop].as_str())
    }

    /// Which stop string is complete first in the held text, and where it starts.
    fn first_match(&self) -> Option<(usize, usize)> {
        let found = self.stops.iter().enumerate().filter_map(|(index, stop)| {
            let start = self.held.find(stop.as_str())?;
            Some((start + stop.len(), start, index))
        });
        found.min().map(|(_, start, index)| (index, start))
    }

    /// Length of the longest end of the held text that begins a stop string.
    fn hold_back(&self) -> usize {
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let from = self.held.len().saturating_sub(longest.saturating_sub(1));
        (from..self.held.len())
            .filter(|start| self.held.is_char_boundary(*start))
            .find(|start| {
                let end = &self.held[*start..];
                self.stops.iter().any(|stop| stop.starts_with(end))
            })
            .map_or(0, |start| self.held.len() - start)
    }
}
