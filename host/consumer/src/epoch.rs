//! [`Epoch`]: a name that is never used twice for a thing that comes and goes, and the
//! table that such things stand in.
//!
//! Every assignment of a queue, every group, request and call is a slot of a table plus
//! the slot's generation. Whatever comes back carries the epoch; when the thing is gone,
//! or something else stands in its slot, it is not found and nothing changes.

use std::fmt;

/// Slot and generation of an entry of one table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch {
    slot: u32,
    generation: u32,
}

impl Epoch {
    /// Index of the slot.
    pub fn slot(self) -> usize {
        self.slot as usize
    }

    /// Both parts in one number.
    pub fn to_u64(self) -> u64 {
        (u64::from(self.generation) << 32) | u64::from(self.slot)
    }

    /// The reverse of [`Epoch::to_u64`].
    pub fn from_u64(value: u64) -> Self {
        // The halves of the number.
        Self {
            slot: value as u32,
            generation: (value >> 32) as u32,
        }
    }
}

/// `slot.generation`
impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot, self.generation)
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Things found by [`Epoch`] in constant time.
#[derive(Debug)]
pub(crate) struct EpochTable<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    len: usize,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for EpochTable<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            len: 0,
        }
    }
}

impl<T> EpochTable<T> {
    pub(crate) fn insert(&mut self, value: T) -> Epoch {
        self.len += 1;
        if let Some(slot) = self.free.pop() {
            let entry = &mut self.slots[slot as usize];
            debug_assert!(entry.value.is_none(), "a free slot is empty");
            entry.value = Some(value);
            return Epoch {
                slot,
                generation: entry.generation,
            };
        }
        let slot = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        self.slots.push(Slot {
            generation: 0,
            value: Some(value),
        });
        Epoch {
            slot,
            generation: 0,
        }
    }

    pub(crate) fn get(&self, epoch: Epoch) -> Option<&T> {
        self.slots
            .get(epoch.slot())
            .filter(|slot| slot.generation == epoch.generation)?
            .value
            .as_ref()
    }

    pub(crate) fn get_mut(&mut self, epoch: Epoch) -> Option<&mut T> {
        self.slots
            .get_mut(epoch.slot())
            .filter(|slot| slot.generation == epoch.generation)?
            .value
            .as_mut()
    }

    pub(crate) fn remove(&mut self, epoch: Epoch) -> Option<T> {
        let slot = self
            .slots
            .get_mut(epoch.slot())
            .filter(|slot| slot.generation == epoch.generation)?;
        let value = slot.value.take()?;
        self.len -= 1;
        // After 2^32 lives a slot is retired, so that no epoch comes back.
        if let Some(next) = slot.generation.checked_add(1) {
            slot.generation = next;
            self.free.push(epoch.slot);
        }
        Some(value)
    }

    /// Whatever stands where the entry stood: only deliberate bugs ask for it.
    pub(crate) fn in_slot_of(&self, epoch: Epoch) -> Epoch {
        let slot = self.slots.get(epoch.slot());
        Epoch {
            slot: epoch.slot,
            generation: slot.map_or(epoch.generation, |slot| slot.generation),
        }
    }

    pub(crate) fn contains(&self, epoch: Epoch) -> bool {
        self.get(epoch).is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// In order of slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Epoch, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let epoch = Epoch {
                slot: u32::try_from(index).unwrap_or(u32::MAX),
                generation: slot.generation,
            };
            slot.value.as_ref().map(|value| (epoch, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_never_found_after_its_entry_is_gone() {
        let mut table = EpochTable::default();
        let first = table.insert('a');
        assert_eq!(table.remove(first), Some('a'));
        let second = table.insert('b');
        assert_eq!(first.slot(), second.slot());
        assert_eq!(table.get(first), None);
        assert_eq!(table.get(second), Some(&'b'));
        assert_eq!(table.remove(first), None);
        assert_eq!(table.len(), 1);
        assert_eq!(Epoch::from_u64(second.to_u64()), second);
    }
}
