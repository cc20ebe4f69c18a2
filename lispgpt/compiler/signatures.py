"""Signatures of artifacts: ed25519 (RFC 8032), of the bytes of an artifact's manifest, which has its code's hash.

A private key is a file as OpenSSL writes it (PEM, PKCS 8, without a passphrase).  A public key is a line,
`ed25519 BASE64 NAME`; a user's list of trusted keys has one such line for each, and may have comments after `#`.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.base.json_files import parse_json
from lispgpt.base.reading import read_ordinary, read_text

KIND = "ed25519"
PURPOSE = b"lispgpt artifact\n"
"""Stands before the manifest in what is signed, so that a key's signature of anything else is none of an artifact."""


def make_key(path: Path) -> str:
    """Write a private key to a file that was not there before, for its user's eyes only; its public line."""
    serialization = _library("serialization")
    key = _library("asymmetric.ed25519").Ed25519PrivateKey.generate()
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(file, "wb") as stream:
            stream.write(text)
    except FileExistsError:
        raise UserError(f"{path} is there already, and a key that is lost cannot be made again") from None
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    return public_line(path)


def public_line(key: Path) -> str:
    """What others add to their list of trusted keys for this private key."""
    return f"{KIND} {_public(_private(key))} {key.stem}"


def sign(manifest: bytes, key: Path) -> bytes:
    """The signature of a manifest, as an artifact holds it."""
    private = _private(key)
    signature = base64.b64encode(private.sign(PURPOSE + manifest)).decode()
    return json.dumps({"kind": KIND, "key": _public(private), "signature": signature}).encode()


def signer(path: Path, manifest: bytes, signature: bytes) -> str:
    """The public key that signed an artifact; UserError where the signature does not fit the manifest."""
    ed25519 = _library("asymmetric.ed25519")
    wrong = _library("exceptions", "cryptography").InvalidSignature
    found = parse_json(path / "signature.json", signature)
    try:
        if found["kind"] != KIND:
            raise UserError(f"{path} has a signature of the kind {found['kind']!r:.40}, of which nothing is known here")
        public = ed25519.Ed25519PublicKey.from_public_bytes(_decoded(found["key"]))
        public.verify(_decoded(found["signature"]), PURPOSE + manifest)
    except wrong:
        raise UserError(f"{path} was changed since it was signed: its signature does not fit") from None
    except (KeyError, ValueError, TypeError) as error:
        raise UserError(f"{path} is damaged: its signature is none ({error!s:.80})") from None
    return str(found["key"])


def listed_keys(path: Path) -> list[str]:
    """The public keys in a user's list; none where there is no list."""
    if not os.path.exists(path):  # nor where it may not be looked for
        return []
    keys = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            if words[0] != KIND or len(_decoded(words[1])) != 32:
                raise ValueError
        except (ValueError, IndexError):
            raise UserError(f"{path}:{number}: this should be `{KIND} BASE64 NAME`: {line.strip()[:80]!r}") from None
        keys.append(words[1])
    return keys


def _private(path: Path) -> Any:
    serialization = _library("serialization")
    unsupported = _library("exceptions", "cryptography").UnsupportedAlgorithm
    try:
        key = serialization.load_pem_private_key(read_ordinary(path), None)
    except TypeError:
        raise UserError(f"{path} is protected by a passphrase, and lispgpt asks for none") from None
    except (ValueError, unsupported):
        key = None
    if not isinstance(key, _library("asymmetric.ed25519").Ed25519PrivateKey):
        raise UserError(f"{path} is no private key of ed25519 (lispgpt sign --make-key FILE makes one)")
    return key


def _public(private: Any) -> str:
    return base64.b64encode(private.public_key().public_bytes_raw()).decode()


def _decoded(text: Any) -> bytes:
    if not isinstance(text, str):
        raise TypeError("it should be text")
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error


def _library(name: str, package: str = "cryptography.hazmat.primitives") -> Any:
    try:
        return import_module(f"{package}.{name}")
    except ModuleNotFoundError:
        raise UserError("signatures need the Python package cryptography: pip install 'lispgpt[sign]'") from None
