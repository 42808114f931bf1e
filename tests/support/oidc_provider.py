"""A real provider of identities (OpenID Connect): django-oauth-toolkit as it is, with a login page of the plainest kind.

Started as a program with its settings as JSON on its standard input: client_id, client_secret, users (name -> password, groups),
key (PEM of its private RSA key), database. It prints its port when it answers. `POST /redirect`, `/rotate` and `/groups` change
it.
"""

from __future__ import annotations

import json
import socket
import sys
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import django
from django.conf import settings

if __name__ == "__main__":
    given: dict[str, Any] = json.load(sys.stdin)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    settings.configure(
        SECRET_KEY="of a test",
        ALLOWED_HOSTS=["127.0.0.1"],
        ROOT_URLCONF="__main__",
        USE_TZ=True,
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
        LOGIN_URL="/login/",
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": given["database"], "OPTIONS": {"timeout": 60}}},
        INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions", "oauth2_provider"],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
        ],
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
        OAUTH2_PROVIDER={
            "OIDC_ENABLED": True,
            "OIDC_RSA_PRIVATE_KEY": given["key"],
            "OIDC_ISS_ENDPOINT": f"http://127.0.0.1:{port}/o",
            "PKCE_REQUIRED": True,
            "SCOPES": {"openid": "who you are", "profile": "your name and groups"},
            "OAUTH2_VALIDATOR_CLASS": "__main__.Validator",
            "ALLOWED_REDIRECT_URI_SCHEMES": ["http", "https"],
        },
    )
    django.setup()

    from django.contrib.auth import authenticate, get_user_model, login
    from django.contrib.auth.models import Group
    from django.core.management import call_command
    from django.core.wsgi import get_wsgi_application
    from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
    from django.urls import include, path
    from oauth2_provider.models import get_application_model
    from oauth2_provider.oauth2_validators import OAuth2Validator
    from oauth2_provider.settings import oauth2_settings

    class Validator(OAuth2Validator):
        oidc_claim_scope = None

        def get_additional_claims(self, request: Any) -> dict[str, Any]:
            user = request.user
            return {"preferred_username": user.username, "groups": sorted(group.name for group in user.groups.all())}

    def sign_in(request: HttpRequest) -> HttpResponse:
        if request.method != "POST":
            return HttpResponse("who are you?")
        user = authenticate(request, username=request.POST["username"], password=request.POST["password"])
        if user is None:
            return HttpResponse("wrong", status=403)
        login(request, user)
        return HttpResponseRedirect(request.GET["next"])

    def redirect(request: HttpRequest) -> HttpResponse:
        get_application_model().objects.update(redirect_uris=request.body.decode())
        return HttpResponse("set")

    def rotate(request: HttpRequest) -> HttpResponse:
        oauth2_settings.OIDC_RSA_PRIVATE_KEY = request.body.decode()
        return HttpResponse("rotated")

    def set_groups(request: HttpRequest) -> HttpResponse:
        body = json.loads(request.body)
        get_user_model().objects.get(username=body["name"]).groups.set(
            [Group.objects.get_or_create(name=name)[0] for name in body["groups"]]
        )
        return HttpResponse("set")

    urlpatterns = [
        path("o/", include("oauth2_provider.urls", namespace="oauth2_provider")),
        path("login/", sign_in),
        path("redirect", redirect),
        path("rotate", rotate),
        path("groups", set_groups),
    ]

    class Server(ThreadingMixIn, WSGIServer):
        daemon_threads = True

    class Quiet(WSGIRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    call_command("migrate", verbosity=0)
    for name, (password, groups) in given["users"].items():
        user = get_user_model().objects.create_user(name, password=password)
        user.groups.set([Group.objects.get_or_create(name=group)[0] for group in groups])
    get_application_model().objects.create(
        client_id=given["client_id"],
        client_secret=given["client_secret"],
        hash_client_secret=False,
        redirect_uris="http://127.0.0.1/",
        client_type="confidential",
        authorization_grant_type="authorization-code",
        algorithm="RS256",
        skip_authorization=True,
    )
    server = Server(("127.0.0.1", port), Quiet, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    server.server_name, server.server_port = "127.0.0.1", port
    server.setup_environ()
    server.set_app(get_wsgi_application())
    print(port, flush=True)
    server.serve_forever()
