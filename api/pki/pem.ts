/**
 * PEM: base64 text between a line that begins a block and one that ends it. Reading ignores what stands between blocks. A
 * block that does not end, or ends with another label, is none: the text after it is read on, as Go's `encoding/pem` does.
 * Reading takes linear time.
 */

export interface PemBlock {
  /** `CERTIFICATE`, `EC PRIVATE KEY`, … */
  readonly label: string;
  /** The whole block, from its first dash to its last one. */
  readonly text: string;
  readonly der: Buffer;
  /** RFC 1421 headers stood in the block. */
  readonly hasHeaders: boolean;
}

const BEGIN = '-----BEGIN ';
const END = '-----END ';
const DASHES = '-----';
const LABEL = /^[A-Z0-9 ]+$/;
const MAX_LABEL_LENGTH = 64;

export function readPem(text: string): PemBlock[] {
  const blocks: PemBlock[] = [];
  let begin = text.indexOf(BEGIN);
  let end = text.indexOf(END);
  while (begin !== -1 && end !== -1) {
    if (end < begin) {
      end = text.indexOf(END, begin);
      continue;
    }
    // Only the last beginning before an end may be one of a block.
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

export function writePem(label: string, der: Uint8Array): string {
  const lines =
    Buffer.from(der)
      .toString('base64')
      .match(/.{1,64}/g) ?? [];
  return `-----BEGIN ${label}-----\n${lines.join('\n')}\n-----END ${label}-----\n`;
}
