//! Helpers of the tests of whole programs.

pub(crate) mod agents;
pub(crate) mod gateway;
pub(crate) mod lies;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;

use socket2::{Domain, Socket, Type};

/// A port of 127.0.0.1 that belongs to this process until it ends.
///
/// A socket that never listens holds it: a gateway that allows the reuse of addresses, as Weir does, may listen there, again and
/// again, and the system gives the port to nobody else while no gateway runs.
pub(crate) fn free_port() -> u16 {
    static HELD: Mutex<Vec<Socket>> = Mutex::new(Vec::new());
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_reuse_address(true).expect("an option");
    socket
        .bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())
        .expect("a port is free");
    let bound = socket.local_addr().expect("an address");
    HELD.lock().expect("nobody panics with it").push(socket);
    bound.as_socket().expect("of the internet").port()
}
