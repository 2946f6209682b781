//! Tests of common options.

use weir_volume::VolumeUrl;

use super::*;

fn parse(query: &str) -> Result<CommonOptions, String> {
    let url: VolumeUrl = format!("x:?{query}").parse().expect("a URL");
    let parameters = url.parameters();
    let options = CommonOptions::from_parameters(&parameters).map_err(|error| error.to_string())?;
    parameters.finish().map_err(|error| error.to_string())?;
    Ok(options)
}

#[test]
fn defaults_and_every_parameter() {
    assert_eq!(parse(""), Ok(CommonOptions::default()));
    let expected = CommonOptions {
        depth: 32,
        header_digest: true,
        data_digest: true,
        keep_alive: Duration::from_secs(15),
        controller_loss_timeout: None,
        reconnect_delay: Duration::from_millis(250),
        io_timeout: Duration::from_secs(60),
        flush_after_reconnect: true,
        send_buffer: Some(256 << 10),
        receive_buffer: Some(4 << 20),
        congestion_control: Some("reno".to_owned()),
        dscp: Some(46),
    };
    let query = "depth=32&hdgst=1&ddgst&kato=15&ctrl_loss_timeout=-1&reconnect_delay=250ms&io_timeout=1m\
                 &flush_after_reconnect=trust&sndbuf=256k&rcvbuf=4M&congestion=reno&dscp=46";
    assert_eq!(parse(query), Ok(expected));
    let options = parse("ctrl_loss_timeout=2h").unwrap();
    let two_hours = Duration::from_secs(7200);
    assert_eq!(options.controller_loss_timeout, Some(two_hours));
}

#[test]
fn wrong_values_are_refused_by_name() {
    for (name, value) in [
        ("depth", "0"),
        ("depth", "1025"),
        ("depth", "-1"),
        ("depth", "+1"),
        ("hdgst", "2"),
        ("kato", "0"),
        ("kato", "10ms"),
        ("kato", "2h"),
        ("ctrl_loss_timeout", "-2"),
        ("ctrl_loss_timeout", "99999999999999999999s"),
        ("io_timeout", "1ms"),
        ("reconnect_delay", "5y"),
        ("flush_after_reconnect", "1"),
        ("flush_after_reconnect", "fail"),
        ("sndbuf", "4095"),
        ("sndbuf", "much"),
        ("rcvbuf", "2G"),
        ("rcvbuf", "4294971392"),
        ("congestion", ""),
        ("congestion", "../reno"),
        ("congestion", "sixteen-letters-"),
        ("dscp", "64"),
        ("dscp", "-1"),
    ] {
        let error = parse(&format!("{name}={value}")).unwrap_err();
        assert!(error.contains(name) && error.contains(value), "{error}");
    }
    assert!(parse("depth=1&depth=2").is_err());
}

#[test]
fn sockets_are_as_the_options_say() {
    let options = parse("kato=7&sndbuf=64k&rcvbuf=128k&congestion=reno&dscp=8").unwrap();
    let socket = options.socket_options();
    assert_eq!(socket.user_timeout, Some(Duration::from_secs(7)));
    assert_eq!(
        (socket.send_buffer, socket.receive_buffer),
        (Some(64 << 10), Some(128 << 10))
    );
    assert_eq!(
        (socket.congestion_control.as_deref(), socket.dscp),
        (Some("reno"), Some(8))
    );
}

#[test]
fn addresses_are_taken_apart() {
    assert_eq!(host_and_port("h"), Ok(("h", None)));
    assert_eq!(host_and_port("10.0.0.1:8009"), Ok(("10.0.0.1", Some(8009))));
    assert_eq!(host_and_port("[fd00::1]:1"), Ok(("fd00::1", Some(1))));
    assert_eq!(host_and_port("[fd00::1]"), Ok(("fd00::1", None)));
    assert_eq!(host_and_port("fd00::1"), Ok(("fd00::1", None)));
    for (host, port) in [("h", 1), ("10.0.0.1", 8009), ("fd00::1", 65_535)] {
        let text = authority(host, port);
        assert_eq!(host_and_port(&text), Ok((host, Some(port))));
    }
    for text in ["", ":1", "h:0", "h:70000", "h:x", "[::1", "[::1]x", "[]"] {
        assert!(host_and_port(text).is_err(), "{text}");
    }
}
