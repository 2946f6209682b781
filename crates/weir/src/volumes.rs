//! The kinds of volume that the command line opens.

use weir_volume::Registry;

/// Every kind.
pub(crate) fn registry() -> Registry {
    Registry::standard()
}
