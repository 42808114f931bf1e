"""Self-made TLS certificates, for clusters without an authority of their own: who connects knows the certificate itself."""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import ssl
import sys
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tenuto.kernel.private_files import write_private

VALID_DAYS = 3_650
"""Ten years: agents know the certificate itself, and would have to join again after a change."""
LEFT_DAYS_MIN = 30
"""A certificate that ends sooner is made anew at the next start."""


def kept_certificate(directory: Path, host: str) -> tuple[Path, Path]:
    """Files of the certificate and its key for this address or name; made at the first call, and for another host. Raises
    OSError."""
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    if not (key.exists() and _is_for(certificate, host)):
        directory.mkdir(mode=0o700, exist_ok=True)
        made, secret = _made(host)
        write_private(key, secret)
        write_private(certificate, made)
    return certificate, key


def fingerprint_if_self_made(certificate: Path) -> str:
    """SHA-256 of the certificate, if it is its own authority; else empty. Raises OSError and ValueError."""
    found = x509.load_pem_x509_certificate(certificate.read_bytes())
    if found.issuer != found.subject:
        return ""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(found.public_bytes(serialization.Encoding.PEM).decode())).hexdigest()


def _is_for(certificate: Path, host: str) -> bool:
    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return False
    left = found.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    return _name(host) in names and left > datetime.timedelta(days=LEFT_DAYS_MIN)


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _made(host: str) -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Tenuto")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))  # clocks of machines differ
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName([_name(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(serialization.Encoding.PEM), secret


if (
    __name__ == "__main__"
):  # python -m tenuto.kernel.certificates DIRECTORY HOST: for containers that are started with a certificate
    kept_certificate(Path(sys.argv[1]), sys.argv[2])
