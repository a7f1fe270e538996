//! Nodes and domains of another host.
