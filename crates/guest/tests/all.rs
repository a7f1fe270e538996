//! Tests of the agent, as one program.

mod agent;
mod command;
