//! Volume, Queue, Request, Completion, Geometry and VolumeError: the shape of block storage.
#![forbid(unsafe_code)]
