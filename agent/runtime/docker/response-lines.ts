/** Reads the endless responses of the engine line by line: the progress of a pull, and events. Each line is a JSON text. */
import { GatheredBytes } from '../../../api/machinery/gathered-bytes.ts';
import { ResponseTooLong } from './bounded-responses.ts';

/** A line of the progress may have the message of a registry, of some megabytes. */
const LONGEST_LINE_BYTES = 16 << 20;
const LINE_END = 10;

/**
 * Yields the lines without their ends, and no empty ones. Throws `ResponseTooLong` for a line of more than 16 MiB. A caller
 * that leaves the loop closes the response.
 */
export async function* responseLines(response: AsyncIterable<Buffer>): AsyncGenerator<string> {
  const line = new GatheredBytes();
  for await (const chunk of response) {
    let from = 0;
    for (let end = chunk.indexOf(LINE_END); end !== -1; end = chunk.indexOf(LINE_END, from)) {
      gather(line, chunk.subarray(from, end));
      from = end + 1;
      const text = line.take().toString('utf8').trim();
      if (text !== '') yield text;
    }
    gather(line, chunk.subarray(from));
  }
  const text = line.take().toString('utf8').trim();
  if (text !== '') yield text;
}

function gather(line: GatheredBytes, bytes: Buffer): void {
  if (line.size + bytes.length > LONGEST_LINE_BYTES)
    throw new ResponseTooLong('unknown', `the container runtime sent a line of more than ${LONGEST_LINE_BYTES} bytes`);
  line.push(bytes);
}
