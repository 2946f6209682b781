//! Integration tests of weir-agent.

mod agents;
