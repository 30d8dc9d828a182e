//! Collective algorithms drawn as graphs, and nothing else
