/**
 * Parses PEM: base64 text between a BEGIN line and an END line. It ignores text between blocks. A block without an END line, or
 * with another label on it, is ignored, and parsing continues after its BEGIN line, as in Go's `encoding/pem`.
 */

/** A block. `der` is what its base64 decodes to. */
export interface PemBlock {
  /** `CERTIFICATE`, `EC PRIVATE KEY` and others. */
  readonly label: string;
  /** The whole block, including the BEGIN and END lines. */
  readonly text: string;
  readonly der: Buffer;
  /** Whether the block has RFC 1421 headers. */
  readonly hasHeaders: boolean;
}

const BEGIN = '-----BEGIN ';
const END = '-----END ';
const DASHES = '-----';
const LABEL = /^[A-Z0-9 ]+$/;
const MAX_LABEL_LENGTH = 64;

/** Returns the blocks in their order. Never throws. */
export function readPem(text: string): PemBlock[] {
  const blocks: PemBlock[] = [];
  let begin = text.indexOf(BEGIN);
  let end = text.indexOf(END);
  while (begin !== -1 && end !== -1) {
    if (end < begin) {
      end = text.indexOf(END, begin);
      continue;
    }
    // Only the last BEGIN line before an END line can start a block.
    const next = text.indexOf(BEGIN, begin + BEGIN.length);
    if (next !== -1 && next < end) {
      begin = next;
      continue;
    }
    const block = blockBetween(text, begin, end);
    if (block !== undefined) blocks.push(block);
    begin = next;
  }
  return blocks;
}

function blockBetween(text: string, begin: number, end: number): PemBlock | undefined {
  const start = begin + BEGIN.length;
  const label = text.slice(start, start + MAX_LABEL_LENGTH + DASHES.length).split(DASHES, 1)[0] ?? '';
  const close = `${END}${label}${DASHES}`;
  if (!LABEL.test(label) || !text.startsWith(close, end)) return undefined;
  const inner = text.slice(start + label.length, end);
  const line = /^-----[ \t]*\r?\n/.exec(inner);
  if (line === null) return undefined;
  const body = inner.slice(line[0].length);
  const hasHeaders = body.includes(':');
  const base64 = (hasHeaders ? body.slice(body.search(/\r?\n\r?\n/)) : body).replace(/\s+/g, '');
  if (!/^[A-Za-z0-9+/]*={0,2}$/.test(base64)) return undefined;
  return { label, text: text.slice(begin, end + close.length), der: Buffer.from(base64, 'base64'), hasHeaders };
}

/** Returns one block with lines of 64 characters. */
export function writePem(label: string, der: Uint8Array): string {
  const lines =
    Buffer.from(der)
      .toString('base64')
      .match(/.{1,64}/g) ?? [];
  return `-----BEGIN ${label}-----\n${lines.join('\n')}\n-----END ${label}-----\n`;
}
