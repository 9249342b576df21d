/** PEM: text armour around DER. Reading ignores what stands between blocks, as the reference's readers do. */

export interface PemBlock {
  /** `CERTIFICATE`, `EC PRIVATE KEY`, … */
  readonly label: string;
  readonly der: Buffer;
  /** RFC 1421 headers stood in the block. */
  readonly hasHeaders: boolean;
}

const BLOCK = /-----BEGIN ([A-Z0-9 ]+)-----[ \t]*\r?\n([\s\S]*?)-----END \1-----/g;

export function readPem(text: string): PemBlock[] {
  const blocks: PemBlock[] = [];
  for (const match of text.matchAll(BLOCK)) {
    const body = match[2] ?? '';
    const hasHeaders = body.includes(':');
    const base64 = (hasHeaders ? body.slice(body.search(/\r?\n\r?\n/)) : body).replace(/\s+/g, '');
    if (!/^[A-Za-z0-9+/]*={0,2}$/.test(base64)) continue;
    blocks.push({ label: match[1] ?? '', der: Buffer.from(base64, 'base64'), hasHeaders });
  }
  return blocks;
}

export function writePem(label: string, der: Uint8Array): string {
  const lines =
    Buffer.from(der)
      .toString('base64')
      .match(/.{1,64}/g) ?? [];
  return `-----BEGIN ${label}-----\n${lines.join('\n')}\n-----END ${label}-----\n`;
}
