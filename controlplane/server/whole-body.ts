/** Bodies of requests, gathered and bounded: both protocols read by this. */
import { newRequestEntityTooLarge } from '../../api/meta/status-error.ts';

/** Rejects with 413 when it is longer than `limit` bytes. */
export async function readWhole(body: AsyncIterable<Buffer>, limit: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of body) {
    size += chunk.length;
    if (size > limit) throw newRequestEntityTooLarge(`Request entity too large: limit is ${limit}`);
    chunks.push(chunk);
  }
  return chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : Buffer.concat(chunks, size);
}
