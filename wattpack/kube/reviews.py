"""Bodies and answers of TokenReview and SubjectAccessReview, for every client that speaks HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wattpack.kube.port import Access, JsonObject, TokenIdentity, TokenRefusedError

TOKEN_REVIEWS = ("apis", "authentication.k8s.io", "v1", "tokenreviews")
ACCESS_REVIEWS = ("apis", "authorization.k8s.io", "v1", "subjectaccessreviews")


def token_review(token: str, audiences: Sequence[str]) -> JsonObject:
    """The question who somebody is."""
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token, "audiences": list(audiences)},
    }


def reviewed_identity(answer: JsonObject, audiences: Sequence[str]) -> TokenIdentity:
    """The identity, or ``TokenRefusedError``."""
    status = answer.get("status") or {}
    if status.get("authenticated") is not True:
        raise TokenRefusedError(f"the token is not valid: {status.get('error') or 'no reason'}")
    # A server that does not know audiences answers without them: nothing was checked then.
    if audiences and not set(audiences) & set(status.get("audiences") or ()):
        raise TokenRefusedError("the token is not meant for this audience")
    user: dict[str, Any] = status.get("user") or {}
    extra = {key: tuple(values) for key, values in (user.get("extra") or {}).items()}
    return TokenIdentity(
        str(user.get("username", "")),
        tuple(user.get("groups") or ()),
        extra,
        str(user.get("uid", "")),
    )


def access_review(identity: TokenIdentity, access: Access) -> JsonObject:
    """The question whether somebody may do something."""
    who: JsonObject = {
        "user": identity.username,
        "groups": list(identity.groups),
        "extra": {key: list(values) for key, values in identity.extra.items()},
    }
    if identity.uid:
        who["uid"] = identity.uid
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {**who, **access.to_json()},
    }


def reviewed_access(answer: JsonObject) -> bool:
    """Whether it is allowed; anything but a plain yes is a no."""
    status = answer.get("status") or {}
    return status.get("allowed") is True and status.get("denied") is not True
