//! `/v1/iscsi`: targets, their allowed hosts, CHAP and logical units, and the sessions.

use std::fmt;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::input::{Body, Force, Names, Options};
use super::views::{LunView, SessionView, TargetView};
use super::{ApiError, Context, Refusals, Shared, added};
use crate::name::{HostName, IscsiName};
use crate::state::{
    Change, Chap, Credentials, IscsiChange, LunPatch, LunSpec, Secret, StateError, TargetPatch,
    TargetSpec,
};

/// What is to be proved at a target's login (CHAP). Secrets can be written and never read.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChapSpec {
    /// The name that initiators give.
    pub user: String,
    /// What they prove that they know, 12 to 255 bytes.
    #[schema(write_only, min_length = 12, max_length = 255)]
    pub secret: String,
    /// The name that the target gives to initiators that ask it for proof, with `mutual_secret`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutual_user: Option<String>,
    /// What the target proves that it knows, 12 to 255 bytes; another one than `secret`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(write_only, min_length = 12, max_length = 255)]
    pub mutual_secret: Option<String>,
}

impl fmt::Debug for ChapSpec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ChapSpec")
            .field("user", &self.user)
            .field("mutual_user", &self.mutual_user)
            .finish_non_exhaustive()
    }
}

impl TryFrom<ChapSpec> for Chap {
    type Error = StateError;

    fn try_from(spec: ChapSpec) -> Result<Self, StateError> {
        let missing = |what: &str| StateError::Invalid {
            what: what.to_owned(),
            problem: "is missing: mutual_user and mutual_secret belong together".to_owned(),
        };
        let target = match (spec.mutual_user, spec.mutual_secret) {
            (Some(user), Some(secret)) => Some(Credentials {
                user,
                secret: Secret::new("mutual_secret", secret)?,
            }),
            (None, None) => None,
            (Some(_), None) => return Err(missing("mutual_secret")),
            (None, Some(_)) => return Err(missing("mutual_user")),
        };
        let initiator = Credentials {
            user: spec.user,
            secret: Secret::new("secret", spec.secret)?,
        };
        Ok(Chap { initiator, target })
    }
}

fn view(context: &Context, name: &IscsiName) -> Result<TargetView, ApiError> {
    let control = &context.control;
    let state = control.state();
    let target = state.target(name)?;
    Ok(TargetView::new(&state, &**control.engine(), name, target))
}

fn lun_view(context: &Context, name: &IscsiName, number: u16) -> Result<LunView, ApiError> {
    let control = &context.control;
    let state = control.state();
    let lun = state.lun(name, number)?;
    Ok(LunView::new(&state, &**control.engine(), name, number, lun))
}

/// Carries a change of iSCSI's part through; tells whether anything changed, and which logical unit it was about.
async fn change(context: &Context, change: IscsiChange) -> Result<(bool, Option<u16>), ApiError> {
    let outcome = context.control.change(Change::Iscsi(change)).await?;
    Ok((outcome.changed, outcome.lun))
}

/// Lists the targets.
#[utoipa::path(get, path = "/v1/iscsi/targets", tag = "iscsi", operation_id = "list_targets",
    responses((status = 200, body = Vec<TargetView>)))]
pub(super) async fn list(State(context): Shared) -> Json<Vec<TargetView>> {
    let control = &context.control;
    let state = control.state();
    let view = |(name, target)| TargetView::new(&state, &**control.engine(), name, target);
    Json(state.targets.iter().map(view).collect())
}

/// Shows a target.
#[utoipa::path(get, path = "/v1/iscsi/targets/{iqn}", tag = "iscsi", operation_id = "show_target",
    params(("iqn" = IscsiName, Path)),
    responses((status = 200, body = TargetView), Refusals))]
pub(super) async fn show(
    State(context): Shared,
    Names(target): Names<IscsiName>,
) -> Result<Json<TargetView>, ApiError> {
    view(&context, &target).map(Json)
}

/// Adds a target.
#[utoipa::path(put, path = "/v1/iscsi/targets/{iqn}", tag = "iscsi", operation_id = "add_target",
    params(("iqn" = IscsiName, Path)), request_body = TargetSpec,
    responses((status = 201, body = TargetView), (status = 200, body = TargetView), Refusals))]
pub(super) async fn add(
    State(context): Shared,
    Names(target): Names<IscsiName>,
    Body(spec): Body<TargetSpec>,
) -> Result<impl IntoResponse, ApiError> {
    let name = target.clone();
    let (changed, _) = change(&context, IscsiChange::AddTarget { target, spec }).await?;
    Ok(added(changed, view(&context, &name)?))
}

/// Changes a target.
#[utoipa::path(patch, path = "/v1/iscsi/targets/{iqn}", tag = "iscsi", operation_id = "set_target",
    params(("iqn" = IscsiName, Path)), request_body = TargetPatch,
    responses((status = 200, body = TargetView), Refusals))]
pub(super) async fn set(
    State(context): Shared,
    Names(target): Names<IscsiName>,
    Body(patch): Body<TargetPatch>,
) -> Result<Json<TargetView>, ApiError> {
    let name = target.clone();
    change(&context, IscsiChange::SetTarget { target, patch }).await?;
    view(&context, &name).map(Json)
}

/// Removes a target. With force, its logical units are removed with it; their volumes stay.
#[utoipa::path(delete, path = "/v1/iscsi/targets/{iqn}", tag = "iscsi",
    operation_id = "remove_target",
    params(("iqn" = IscsiName, Path), Force), responses((status = 204), Refusals))]
pub(super) async fn remove(
    State(context): Shared,
    Names(target): Names<IscsiName>,
    Options(Force { force }): Options<Force>,
) -> Result<StatusCode, ApiError> {
    change(&context, IscsiChange::RemoveTarget { target, force }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Allows a registered host to log in.
#[utoipa::path(put, path = "/v1/iscsi/targets/{iqn}/hosts/{host}", tag = "iscsi",
    operation_id = "allow_initiator",
    params(("iqn" = IscsiName, Path), ("host" = HostName, Path)),
    responses((status = 201, body = TargetView), (status = 200, body = TargetView), Refusals))]
pub(super) async fn allow_host(
    State(context): Shared,
    Names((target, host)): Names<(IscsiName, HostName)>,
) -> Result<impl IntoResponse, ApiError> {
    let name = target.clone();
    let (changed, _) = change(&context, IscsiChange::AllowHost { target, host }).await?;
    Ok(added(changed, view(&context, &name)?))
}

/// Takes an allowance back. The host's sessions with this target are ended.
#[utoipa::path(delete, path = "/v1/iscsi/targets/{iqn}/hosts/{host}", tag = "iscsi",
    operation_id = "disallow_initiator",
    params(("iqn" = IscsiName, Path), ("host" = HostName, Path)),
    responses((status = 204), Refusals))]
pub(super) async fn disallow_host(
    State(context): Shared,
    Names((target, host)): Names<(IscsiName, HostName)>,
) -> Result<StatusCode, ApiError> {
    change(&context, IscsiChange::DisallowHost { target, host }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Says what is to be proved at login (CHAP) from now on. Sessions that there are stay.
#[utoipa::path(put, path = "/v1/iscsi/targets/{iqn}/chap", tag = "iscsi", operation_id = "set_chap",
    params(("iqn" = IscsiName, Path)), request_body = ChapSpec,
    responses((status = 201, body = TargetView), (status = 200, body = TargetView), Refusals))]
pub(super) async fn set_chap(
    State(context): Shared,
    Names(target): Names<IscsiName>,
    Body(spec): Body<ChapSpec>,
) -> Result<impl IntoResponse, ApiError> {
    let (name, chap) = (target.clone(), Some(spec.try_into()?));
    let (changed, _) = change(&context, IscsiChange::SetChap { target, chap }).await?;
    Ok(added(changed, view(&context, &name)?))
}

/// Asks for no proof at login any more.
#[utoipa::path(delete, path = "/v1/iscsi/targets/{iqn}/chap", tag = "iscsi",
    operation_id = "remove_chap",
    params(("iqn" = IscsiName, Path)), responses((status = 204), Refusals))]
pub(super) async fn remove_chap(
    State(context): Shared,
    Names(target): Names<IscsiName>,
) -> Result<StatusCode, ApiError> {
    change(&context, IscsiChange::SetChap { target, chap: None }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists a target's logical units.
#[utoipa::path(get, path = "/v1/iscsi/targets/{iqn}/luns", tag = "iscsi", operation_id = "list_luns",
    params(("iqn" = IscsiName, Path)),
    responses((status = 200, body = Vec<LunView>), Refusals))]
pub(super) async fn list_luns(
    State(context): Shared,
    Names(target): Names<IscsiName>,
) -> Result<Json<Vec<LunView>>, ApiError> {
    view(&context, &target).map(|view| Json(view.luns))
}

/// Adds a logical unit under the lowest free number, or finds one that already is as asked for.
#[utoipa::path(post, path = "/v1/iscsi/targets/{iqn}/luns", tag = "iscsi",
    operation_id = "add_lun_anywhere",
    params(("iqn" = IscsiName, Path)), request_body = LunSpec,
    responses((status = 201, body = LunView), (status = 200, body = LunView), Refusals))]
pub(super) async fn add_any_lun(
    State(context): Shared,
    Names(target): Names<IscsiName>,
    Body(spec): Body<LunSpec>,
) -> Result<impl IntoResponse, ApiError> {
    let (name, lun) = (target.clone(), None);
    let (changed, lun) = change(&context, IscsiChange::AddLun { target, lun, spec }).await?;
    let lun = lun.expect("adding a logical unit says which");
    Ok(added(changed, lun_view(&context, &name, lun)?))
}

/// Shows a logical unit.
#[utoipa::path(get, path = "/v1/iscsi/targets/{iqn}/luns/{lun}", tag = "iscsi",
    operation_id = "show_lun",
    params(("iqn" = IscsiName, Path), ("lun" = u16, Path)),
    responses((status = 200, body = LunView), Refusals))]
pub(super) async fn show_lun(
    State(context): Shared,
    Names((target, lun)): Names<(IscsiName, u16)>,
) -> Result<Json<LunView>, ApiError> {
    lun_view(&context, &target, lun).map(Json)
}

/// Adds a logical unit.
#[utoipa::path(put, path = "/v1/iscsi/targets/{iqn}/luns/{lun}", tag = "iscsi",
    operation_id = "add_lun",
    params(("iqn" = IscsiName, Path), ("lun" = u16, Path)), request_body = LunSpec,
    responses((status = 201, body = LunView), (status = 200, body = LunView), Refusals))]
pub(super) async fn add_lun(
    State(context): Shared,
    Names((target, number)): Names<(IscsiName, u16)>,
    Body(spec): Body<LunSpec>,
) -> Result<impl IntoResponse, ApiError> {
    let (name, lun) = (target.clone(), Some(number));
    let (changed, _) = change(&context, IscsiChange::AddLun { target, lun, spec }).await?;
    Ok(added(changed, lun_view(&context, &name, number)?))
}

/// Changes a logical unit. Hosts that are logged in are told.
#[utoipa::path(patch, path = "/v1/iscsi/targets/{iqn}/luns/{lun}", tag = "iscsi",
    operation_id = "set_lun",
    params(("iqn" = IscsiName, Path), ("lun" = u16, Path)), request_body = LunPatch,
    responses((status = 200, body = LunView), Refusals))]
pub(super) async fn set_lun(
    State(context): Shared,
    Names((target, lun)): Names<(IscsiName, u16)>,
    Body(patch): Body<LunPatch>,
) -> Result<Json<LunView>, ApiError> {
    let name = target.clone();
    change(&context, IscsiChange::SetLun { target, lun, patch }).await?;
    lun_view(&context, &name, lun).map(Json)
}

/// Removes a logical unit; its volume stays. Hosts that are logged in are told.
#[utoipa::path(delete, path = "/v1/iscsi/targets/{iqn}/luns/{lun}", tag = "iscsi",
    operation_id = "remove_lun",
    params(("iqn" = IscsiName, Path), ("lun" = u16, Path)), responses((status = 204), Refusals))]
pub(super) async fn remove_lun(
    State(context): Shared,
    Names((target, lun)): Names<(IscsiName, u16)>,
) -> Result<StatusCode, ApiError> {
    change(&context, IscsiChange::RemoveLun { target, lun }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists the sessions, those of discovery among them.
#[utoipa::path(get, path = "/v1/iscsi/sessions", tag = "iscsi", operation_id = "list_sessions",
    responses((status = 200, body = Vec<SessionView>), Refusals))]
pub(super) async fn sessions(State(context): Shared) -> Result<Json<Vec<SessionView>>, ApiError> {
    let connections = context.control.engine().connections().await?;
    Ok(Json(
        connections
            .into_iter()
            .filter_map(SessionView::of)
            .collect(),
    ))
}

#[cfg(test)]
mod tests;
