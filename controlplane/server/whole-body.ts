/** Reads the whole body of a request within a size limit, for both protocols. */
import { newRequestEntityTooLarge } from '../../api/meta/status-error.ts';

/** Rejects with a 413 if the body is longer than `limit` bytes. `count` receives the size of each part. */
export async function readWhole(
  body: AsyncIterable<Buffer>,
  limit: number,
  count?: (bytes: number) => void,
): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of body) {
    size += chunk.length;
    if (size > limit) throw newRequestEntityTooLarge(`Request entity too large: limit is ${limit}`);
    count?.(chunk.length);
    chunks.push(chunk);
  }
  return chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : Buffer.concat(chunks, size);
}
