//! libCacheSim's rules where they are not ours: what the documents say about the differences.
//! Both give records up on a hit, which no policy of a pool can do.

type Keys = Vec<usize>;

fn take(keys: &mut Keys, key: usize) -> bool {
    let before = keys.len();
    keys.retain(|other| *other != key);
    keys.len() < before
}

/// Misses of SLRU with four equal segments of at most a quarter of the slots, rounded down.
pub(crate) fn slru(keys: &[usize], slots: usize) -> u64 {
    let most = slots / 4;
    let mut segments = vec![Keys::new(); 4];
    let mut misses = 0;
    for key in keys {
        if let Some(at) = segments.iter().position(|segment| segment.contains(key)) {
            let up = (at + 1).min(3);
            take(&mut segments[at], *key);
            segments[up].push(*key);
            if at < up && segments[up].len() > most {
                cool(&mut segments, up, most);
            }
            continue;
        }
        misses += 1;
        if segments.iter().map(Vec::len).sum::<usize>() == slots {
            segments.iter_mut().find(|segment| !segment.is_empty()).unwrap().remove(0);
        }
        let room = segments.iter().position(|segment| segment.len() < most);
        segments[room.unwrap_or(0)].push(*key);
    }
    misses
}

/// Moves what is too much down, out of the lowest segment for good.
fn cool(segments: &mut [Keys], at: usize, most: usize) {
    while segments[at].len() > most {
        let oldest = segments[at].remove(0);
        if let Some(below) = at.checked_sub(1) {
            segments[below].push(oldest);
            cool(segments, below, most);
        }
    }
}

/// LIRS with a queue of a hundredth of the slots.
#[derive(Default)]
struct Lirs {
    stack: Keys,
    queue: Keys,
    lir: Keys,
    resident: Keys,
    /// Keys of the stack that are not resident, the longest so first.
    lost: Keys,
}

impl Lirs {
    fn prune(&mut self) {
        while let Some(bottom) = self.stack.first().copied()
            && !self.lir.contains(&bottom)
        {
            self.stack.remove(0);
            take(&mut self.lost, bottom);
        }
    }

    /// The oldest of the queue loses its slot when there are `most` in it.
    fn make_room(&mut self, most: usize) {
        if self.queue.len() >= most {
            let oldest = self.queue.remove(0);
            take(&mut self.resident, oldest);
            if self.stack.contains(&oldest) {
                self.lost.push(oldest);
            }
        }
    }

    fn demote(&mut self, most: usize) {
        let bottom = self.stack.remove(0);
        take(&mut self.lir, bottom);
        self.make_room(most);
        self.queue.push(bottom);
        self.prune();
    }
}

/// Misses of LIRS that demotes a record of the stack for a hit in the queue.
pub(crate) fn lirs(keys: &[usize], slots: usize) -> u64 {
    let most_hir = (slots / 100).max(1);
    let most_lir = slots - most_hir;
    let mut all = Lirs::default();
    let mut misses = 0;
    for key in keys {
        let (in_stack, in_queue) = (take(&mut all.stack, *key), take(&mut all.queue, *key));
        // One that pushed itself out of the queue is a hit while it is in the stack.
        let is_hit = in_queue || (in_stack && all.resident.contains(key));
        misses += u64::from(!is_hit);
        if all.lir.contains(key) {
            all.stack.push(*key);
            all.prune();
            continue;
        }
        let full = all.lir.len() >= most_lir;
        if in_stack || (!in_queue && !full) {
            take(&mut all.lost, *key);
            all.stack.push(*key);
            if full {
                all.demote(most_hir);
            }
            all.lir.push(*key);
        } else if in_queue {
            all.queue.push(*key);
            if full {
                all.demote(most_hir);
            }
            all.stack.push(*key);
        } else {
            all.make_room(most_hir);
            all.queue.push(*key);
            all.stack.push(*key);
        }
        if !all.resident.contains(key) {
            all.resident.push(*key);
        }
        while all.stack.len() > 2 * slots && !all.lost.is_empty() {
            let key = all.lost.remove(0);
            take(&mut all.stack, key);
        }
    }
    misses
}
