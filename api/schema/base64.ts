/** Checks the base64 of fields of bytes, with the errors of Go's decoder. */

/**
 * The error of a text that is not base64. The message is that of Go's `encoding/base64`, with the position of the first
 * invalid byte.
 */
export class Base64Error extends Error {
  override readonly name = 'Base64Error';
}

const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;

/** Returns the text without line breaks. Throws a `Base64Error`, which names the first invalid byte. */
export function canonicalBase64(text: string): string {
  if (BASE64.test(text)) return text;
  let at = 0;
  let quantum = 0;
  const bytes = Buffer.from(text);
  const newline = (): void => {
    while (bytes[at] === 0x0a || bytes[at] === 0x0d) at += 1;
  };
  const corrupt = (offset: number): never => {
    throw new Base64Error(`illegal base64 data at input byte ${offset}`);
  };
  for (newline(); at < bytes.length; newline()) {
    const char = String.fromCharCode(bytes[at] ?? 0);
    at += 1;
    if (/[A-Za-z0-9+/]/.test(char)) {
      quantum = (quantum + 1) % 4;
      continue;
    }
    if (char !== '=' || quantum < 2) corrupt(at - 1);
    newline();
    if (quantum === 2) {
      if (at >= bytes.length) corrupt(bytes.length);
      if (bytes[at] !== 0x3d) corrupt(at);
      at += 1;
      newline();
    }
    if (at < bytes.length) corrupt(at);
    quantum = 0;
  }
  if (quantum !== 0) corrupt(bytes.length - quantum);
  return Buffer.from(text, 'base64').toString('base64');
}
