/** Computes the checksum that each record of the log has for its key and value. */
import { crc32 } from 'node:zlib';

export function checksumOf(key: string, value: Buffer | null): number {
  const ofKey = crc32(key);
  return value === null ? ofKey : crc32(value, ofKey);
}
