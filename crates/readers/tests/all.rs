//! The inputs of the fuzzer without the fuzzer, in every `make test`.

mod replay;
mod worst;
