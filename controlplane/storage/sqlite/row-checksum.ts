/** Computes the checksum that each record of the log has for its key and value. */
import { crc32 } from 'node:zlib';

/** Returns the CRC-32 of a record, as an unsigned number. `null` is a deletion. */
export function checksumOf(key: string, value: Buffer | null): number {
  const ofKey = crc32(key);
  return value === null ? ofKey : crc32(value, ofKey);
}
