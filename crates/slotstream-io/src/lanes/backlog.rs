//! The state of the lane queue without its threads: pure, so that a model checker can drive it.

use std::collections::VecDeque;

use slotstream_core::ReadClass;

/// What a lane that asks for work is told.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<J> {
    /// Read it; then call [`Backlog::finished`].
    Read(J, ReadClass),
    /// End it: its owner no longer wants it.
    Cancelled(J),
    /// End it: the queue was shut down.
    Closed(J),
    /// Nothing to do: wait for a signal, then ask again.
    Wait,
    /// Nothing to do, now or later.
    Leave,
}

/// Queued jobs of both classes and the count of those being read.
#[derive(Debug)]
pub(super) struct Backlog<J> {
    demand: VecDeque<J>,
    speculative: VecDeque<J>,
    in_flight: usize,
    /// No read begins any more.
    closed: bool,
    /// Lanes leave when nothing is queued.
    leaving: bool,
}

impl<J> Backlog<J> {
    pub(super) const fn new() -> Self {
        Self {
            demand: VecDeque::new(),
            speculative: VecDeque::new(),
            in_flight: 0,
            closed: false,
            leaving: false,
        }
    }

    /// Queues jobs behind those of their class. Also after [`close`](Self::close): lanes then
    /// end them.
    pub(super) fn push(&mut self, class: ReadClass, jobs: impl IntoIterator<Item = J>) {
        self.class(class).extend(jobs);
    }

    /// Queued speculation that is `wanted` goes behind the demands, in its order.
    pub(super) fn promote(&mut self, wanted: impl Fn(&J) -> bool) {
        let (wanted, others) = self.speculative.drain(..).partition(|job| wanted(job));
        self.speculative = others;
        let mut wanted: VecDeque<J> = wanted;
        self.demand.append(&mut wanted);
    }

    /// Takes the next job: any demand before any speculation.
    pub(super) fn next(&mut self, cancelled: impl FnOnce(&J) -> bool) -> Next<J> {
        let (job, class) = match self.demand.pop_front() {
            Some(job) => (job, ReadClass::Demand),
            None => match self.speculative.pop_front() {
                Some(job) => (job, ReadClass::Speculative),
                None if self.leaving => return Next::Leave,
                None => return Next::Wait,
            },
        };
        if self.closed {
            Next::Closed(job)
        } else if cancelled(&job) {
            Next::Cancelled(job)
        } else {
            self.in_flight += 1;
            Next::Read(job, class)
        }
    }

    /// Takes further jobs of a class that a job was just handed out of, to be read with it: `most`
    /// at most, none that would be ended, and no speculation before a demand.
    pub(super) fn more(
        &mut self,
        class: ReadClass,
        most: usize,
        cancelled: impl Fn(&J) -> bool,
    ) -> Vec<J> {
        if self.closed || (class != ReadClass::Demand && !self.demand.is_empty()) {
            return Vec::new();
        }
        let queue = self.class(class);
        let ahead = queue.iter().take(most).take_while(|job| !cancelled(job)).count();
        let jobs: Vec<J> = queue.drain(..ahead).collect();
        self.in_flight += jobs.len();
        jobs
    }

    /// A job handed out to be read has been read.
    pub(super) fn finished(&mut self) {
        debug_assert!(self.in_flight > 0, "finished more reads than began");
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// Closes, and sends the lanes away once everything queued has been ended.
    pub(super) fn leave(&mut self) {
        self.closed = true;
        self.leaving = true;
    }

    pub(super) fn queued(&self, class: ReadClass) -> usize {
        match class {
            ReadClass::Demand => self.demand.len(),
            _ => self.speculative.len(),
        }
    }

    pub(super) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// A class that this queue does not know waits with the speculation.
    fn class(&mut self, class: ReadClass) -> &mut VecDeque<J> {
        match class {
            ReadClass::Demand => &mut self.demand,
            _ => &mut self.speculative,
        }
    }
}

#[cfg(test)]
mod tests {
    use slotstream_core::ReadClass::{Demand, Speculative};

    use super::*;

    #[test]
    fn demand_first_and_each_class_in_order() {
        let mut backlog = Backlog::new();
        backlog.push(Speculative, [10, 11]);
        backlog.push(Demand, [1, 2]);
        let mut take = || backlog.next(|_| false);
        assert_eq!(take(), Next::Read(1, Demand));
        assert_eq!(take(), Next::Read(2, Demand));
        assert_eq!(take(), Next::Read(10, Speculative));
        assert_eq!(backlog.in_flight(), 3);
        backlog.push(Demand, [3]);
        assert_eq!(backlog.next(|_| false), Next::Read(3, Demand));
        assert_eq!(backlog.next(|_| true), Next::Cancelled(11));
        assert_eq!(backlog.next(|_| false), Next::Wait);
        assert_eq!(backlog.in_flight(), 4);
        backlog.finished();
        assert_eq!(backlog.in_flight(), 3);
    }

    #[test]
    fn more_is_of_the_same_class_in_order_and_stops_where_something_is_to_be_ended() {
        let mut backlog = Backlog::new();
        backlog.push(Speculative, 10..14);
        assert_eq!(backlog.next(|_| false), Next::Read(10, Speculative));
        backlog.push(Demand, 1..6);
        assert_eq!(backlog.more(Speculative, 9, |_| false), [], "a demand waits");
        assert_eq!(backlog.next(|_| false), Next::Read(1, Demand));
        assert_eq!(backlog.more(Demand, 0, |_| false), []);
        assert_eq!(backlog.more(Demand, 2, |_| false), [2, 3]);
        assert_eq!(backlog.more(Demand, 9, |job| *job == 5), [4]);
        assert_eq!(backlog.in_flight(), 5);
        assert_eq!(backlog.next(|job| *job == 5), Next::Cancelled(5));
        assert_eq!(backlog.next(|_| false), Next::Read(11, Speculative));
        backlog.close();
        assert_eq!(backlog.more(Speculative, 9, |_| false), []);
        assert_eq!(backlog.queued(Speculative), 2);
    }

    #[test]
    fn what_is_promoted_goes_behind_the_demands_in_order() {
        let mut backlog = Backlog::new();
        backlog.push(Speculative, 10..16);
        backlog.push(Demand, [1]);
        backlog.promote(|job| [14, 11].contains(job));
        assert_eq!((backlog.queued(Demand), backlog.queued(Speculative)), (3, 4));
        let mut take = || backlog.next(|_| false);
        for demand in [1, 11, 14] {
            assert_eq!(take(), Next::Read(demand, Demand));
        }
        for other in [10, 12, 13, 15] {
            assert_eq!(take(), Next::Read(other, Speculative));
        }
        assert_eq!(take(), Next::Wait);
    }

    #[test]
    fn a_closed_backlog_reads_nothing_and_loses_nothing() {
        let mut backlog = Backlog::new();
        backlog.push(Demand, [1]);
        backlog.close();
        assert_eq!(backlog.next(|_| true), Next::Closed(1));
        assert_eq!(backlog.next(|_| false), Next::Wait);
        backlog.push(Speculative, [2]);
        backlog.leave();
        assert_eq!(backlog.queued(Speculative), 1);
        assert_eq!(backlog.next(|_| false), Next::Closed(2));
        assert_eq!(backlog.next(|_| false), Next::Leave);
        assert_eq!(backlog.in_flight(), 0);
    }
}
