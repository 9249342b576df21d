/**
 * A small piece of a received chunk keeps the whole chunk in memory, up to 64 KiB for a single byte. What counts by its length
 * while it waits for a reader has to be copied first, or a peer fills gigabytes where megabytes are allowed. The results of
 * zlib are pieces of such chunks as well.
 */

/** Returns the bytes themselves, or a copy if they keep more than twice their size in memory. */
export function ownBytes(bytes: Buffer): Buffer {
  if (bytes.buffer.byteLength <= 2 * bytes.length) return bytes;
  // A small buffer of `Buffer.from` would keep a pool of 8 KiB.
  const copy = Buffer.allocUnsafeSlow(bytes.length);
  bytes.copy(copy);
  return copy;
}
