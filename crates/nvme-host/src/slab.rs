//! Numbered places that are used again, so that a steady stream of commands allocates nothing.

/// A vector with holes; a value keeps its number until it is taken out.
pub(crate) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab {
            places: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    /// How many values it holds.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Puts a value in; its number.
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(index) = self.free.pop() {
            self.places[index as usize] = Some(value);
            return index;
        }
        self.places.push(Some(value));
        (self.places.len() - 1) as u32
    }

    /// The value at `index`.
    ///
    /// # Panics
    /// When there is none: a number outlived its value.
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut T {
        self.find_mut(index).expect("a place in use holds a value")
    }

    /// The value at `index`, if there is one.
    pub(crate) fn find_mut(&mut self, index: u32) -> Option<&mut T> {
        self.places.get_mut(index as usize)?.as_mut()
    }

    /// Takes the value at `index` out.
    ///
    /// # Panics
    /// When there is none.
    pub(crate) fn remove(&mut self, index: u32) -> T {
        let value = self.places[index as usize]
            .take()
            .expect("a value is taken out once");
        self.free.push(index);
        value
    }

    /// Every value with its number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let numbered = self.places.iter().enumerate();
        numbered.filter_map(|(index, place)| place.as_ref().map(|value| (index as u32, value)))
    }

    /// Every value with its number.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        let numbered = self.places.iter_mut().enumerate();
        numbered.filter_map(|(index, place)| place.as_mut().map(|value| (index as u32, value)))
    }
}
