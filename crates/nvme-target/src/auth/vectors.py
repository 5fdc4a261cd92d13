# Prints what tests.rs expects, from Python's hashlib, hmac, zlib and pow: they share no code with us.
import base64, hashlib, hmac, zlib
HOST, SUBSYSTEM = b"nqn.2026-11.com.example:host", b"nqn.2026-11.com.example:test"
NAMES = {1: "sha256", 2: "sha384", 3: "sha512"}

def secret(key, hash):
    crc = zlib.crc32(key).to_bytes(4, "little")
    return "DHHC-1:%02x:%s:" % (hash, base64.b64encode(key + crc).decode())

def key_of(key, hash, owner):
    return hmac.digest(key, owner + b"NVMe-over-Fabrics", NAMES[hash]) if hash else key

def response(name, key, challenge, sequence, transaction, role, a, b, session=None):
    if session is not None:
        challenge = hmac.digest(hashlib.new(name, session).digest(), challenge, name)
    text = challenge + sequence.to_bytes(4, "little") + transaction.to_bytes(2, "little")
    return hmac.digest(key, text + b"\0" + role + a + b"\0" + b, name).hex()

def prime(bits, offset):
    e = term = 1 << (bits + 70)
    for k in range(1, 4000):
        term //= k
        e += term
    return (1 << bits) - (1 << bits - 64) + ((e >> 200) + offset << 64) - 1

KEY, OWN = bytes(range(32)), bytes(range(100, 148))
P = prime(2048, 560316)
X, Y = int.from_bytes(bytes(range(1, 65)), "big"), 12345678901234567890
session = pow(pow(2, Y, P), X, P).to_bytes(256, "big")
if __name__ == "__main__":
    print(secret(KEY, 0)); print(secret(KEY, 1)); print(secret(OWN, 2))
    for hash, name in NAMES.items():
        n = hashlib.new(name).digest_size
        print(name, response(name, key_of(KEY, 0, HOST), bytes([7] * n), 0x01020304, 0xabcd, b"HostHost", HOST, SUBSYSTEM))
    print("transformed", response("sha256", key_of(KEY, 1, HOST), bytes([7] * 32), 0x01020304, 0xabcd, b"HostHost", HOST, SUBSYSTEM))
    print("controller", response("sha384", key_of(OWN, 2, SUBSYSTEM), bytes([9] * 48), 5, 6, b"Controller", SUBSYSTEM, HOST))
    print("session", response("sha512", KEY, bytes([7] * 64), 1, 2, b"HostHost", HOST, SUBSYSTEM, session))
    print("public", hashlib.sha256(pow(2, X, P).to_bytes(256, "big")).hexdigest())
    print("session key", hashlib.sha256(session).hexdigest())
    for bits, offset in ((2048, 560316), (3072, 2625351), (4096, 5736041), (6144, 15705020), (8192, 10965728)):
        print(bits, hashlib.sha256(prime(bits, offset).to_bytes(bits // 8, "big")).hexdigest())
