//! The control API: HTTP+JSON under `/v1`, metrics at `/metrics`.
//!
//! Calls are idempotent. PUT adds a thing: 201 when it was added, 200 when it was already as asked
//! for (what the request leaves out, it has no opinion on), 409 when it is there and differs. PATCH
//! sets what it names and leaves the rest. DELETE answers 204, and 404 when there is nothing of the
//! name: a mistyped name is not taken for success. A change is answered when it is stored and in
//! force on every reactor. Every refusal has the body of [`error::ErrorBody`].

pub mod ceph;
pub mod error;
pub mod latency;
pub mod views;

mod exports;
mod hosts;
pub mod images;
mod input;
mod listeners;
mod running;
pub mod socket;
mod subsystems;
mod targets;
mod volumes;

use std::sync::Arc;
use std::time::Instant;

use axum::extract::DefaultBodyLimit;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use weir_rbd::RbdHost;

use self::error::{ApiError, Refusals};
pub use self::input::SizeInput;
pub use self::targets::ChapSpec;
pub use self::volumes::{Resize, VolumeSpec};
use crate::control::Control;
use crate::limits::Budget;

/// Largest request body, in bytes.
const BODY_LENGTH_MAX: usize = 1024 * 1024;

/// What the API needs besides the control.
#[derive(Debug, Clone)]
pub struct About {
    /// The version of the program.
    pub version: &'static str,
    /// Where the state is kept.
    pub state: String,
    /// When the gateway started.
    pub started: Instant,
    /// The memory that it takes at worst.
    pub budget: Budget,
}

/// What every handler is given.
struct Context {
    control: Arc<Control>,
    ceph: Option<Arc<RbdHost>>,
    about: About,
    calls: images::Calls,
    told: ceph::Told,
}

type Shared = axum::extract::State<Arc<Context>>;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Weir control API",
        description = "Calls are idempotent. PUT adds a thing: 201 when it was added, 200 when it \
            was already as asked for, 409 when it is there and differs; what the request leaves \
            out, it has no opinion on. PATCH sets what it names. DELETE answers 204, and 404 when \
            there is nothing of the name. A change is answered when it is stored and in force on \
            every reactor.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    components(schemas(error::ErrorBody, error::ErrorDetail, crate::name::ListenerAddress)),
    servers((url = "http://localhost", description = "On the control socket")),
    tags(
        (name = "volumes", description = "What is served"),
        (name = "images", description = "Images in the pools of Ceph clusters"),
        (name = "subsystems", description = "How it is served: subsystems and their namespaces"),
        (name = "iscsi", description = "How it is served: iSCSI targets, their logical units and sessions"),
        (name = "nfs", description = "How it is served: NFS exports"),
        (name = "hosts", description = "To whom"),
        (name = "listeners", description = "Where"),
        (name = "running", description = "What goes on"),
    ),
)]
struct Description;

fn open_api_router() -> OpenApiRouter<Arc<Context>> {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(volumes::list))
        .routes(routes!(volumes::show, volumes::add, volumes::remove))
        .routes(routes!(volumes::resize))
        .routes(routes!(volumes::clear_reservations))
        .routes(routes!(volumes::retry))
        .routes(routes!(images::list))
        .routes(routes!(images::show, images::create, images::remove))
        .routes(routes!(images::resize))
        .routes(routes!(images::snapshots))
        .routes(routes!(images::create_snapshot, images::remove_snapshot))
        .routes(routes!(images::clone_snapshot))
        .routes(routes!(images::trashed))
        .routes(routes!(images::restore))
        .routes(routes!(subsystems::list))
        .routes(routes!(
            subsystems::show,
            subsystems::add,
            subsystems::set,
            subsystems::remove
        ))
        .routes(routes!(subsystems::allow_host, subsystems::disallow_host))
        .routes(routes!(
            subsystems::list_namespaces,
            subsystems::add_any_namespace
        ))
        .routes(routes!(
            subsystems::show_namespace,
            subsystems::add_namespace,
            subsystems::set_namespace,
            subsystems::remove_namespace
        ))
        .routes(routes!(targets::list))
        .routes(routes!(
            targets::show,
            targets::add,
            targets::set,
            targets::remove
        ))
        .routes(routes!(targets::allow_host, targets::disallow_host))
        .routes(routes!(targets::set_chap, targets::remove_chap))
        .routes(routes!(targets::list_luns, targets::add_any_lun))
        .routes(routes!(
            targets::show_lun,
            targets::add_lun,
            targets::set_lun,
            targets::remove_lun
        ))
        .routes(routes!(targets::sessions))
        .routes(routes!(exports::list))
        .routes(routes!(
            exports::show,
            exports::add,
            exports::set,
            exports::remove
        ))
        .routes(routes!(exports::list_files))
        .routes(routes!(
            exports::show_file,
            exports::add_file,
            exports::set_file,
            exports::remove_file
        ))
        .routes(routes!(hosts::list))
        .routes(routes!(hosts::show, hosts::add, hosts::set, hosts::remove))
        .routes(routes!(listeners::list))
        .routes(routes!(
            listeners::show,
            listeners::add,
            listeners::set,
            listeners::remove
        ))
        .routes(routes!(listeners::retry))
        .routes(routes!(running::connections))
        .routes(routes!(running::connection, running::disconnect))
        .routes(routes!(running::reactors))
        .routes(routes!(latency::namespaces))
        .routes(routes!(latency::connections))
        .routes(routes!(latency::luns))
        .routes(routes!(latency::lun))
        .routes(routes!(latency::files))
        .routes(routes!(latency::file))
        .routes(routes!(latency::namespace))
        .routes(routes!(latency::connection))
        .routes(routes!(running::status))
        .routes(routes!(running::metrics))
}

/// The OpenAPI description as JSON, as `/v1/openapi.json` gives it.
pub fn open_api() -> String {
    let (_, description) = open_api_router().split_for_parts();
    let mut text = description
        .to_pretty_json()
        .expect("the description is plain JSON");
    text.push('\n');
    text
}

/// The API's routes, of a gateway that knows no Ceph.
pub fn router(control: Arc<Control>, about: About) -> Router {
    router_with_ceph(control, about, None)
}

/// The API's routes. `ceph` is this gateway as a user of Ceph, where it is one.
pub fn router_with_ceph(control: Arc<Control>, about: About, ceph: Option<Arc<RbdHost>>) -> Router {
    let description = open_api();
    let (router, _) = open_api_router().split_for_parts();
    let describe = move || {
        let description = description.clone();
        async move { ([(header::CONTENT_TYPE, "application/json")], description) }
    };
    router
        .route("/v1/openapi.json", get(describe))
        .fallback(|| async { ApiError::no_such_path() })
        .method_not_allowed_fallback(|| async { ApiError::no_such_method() })
        .layer(DefaultBodyLimit::max(BODY_LENGTH_MAX))
        .with_state(Arc::new(Context {
            control,
            ceph,
            about,
            calls: images::Calls::default(),
            told: ceph::Told::default(),
        }))
}

/// The answer to a PUT: the thing, with 201 if it is new.
fn added<T: serde::Serialize>(changed: bool, view: T) -> impl IntoResponse {
    let status = if changed {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    (status, Json(view))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
