//! Aligned buffers, segments and views.
