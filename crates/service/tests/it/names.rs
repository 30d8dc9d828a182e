//! The name server, and ports and connections of processes that are registered with it.

mod connections;
mod destinations;
mod hostile;
mod job_processes;
mod port_processes;
mod ports;
mod registration;
mod server_process;
mod test_server;
