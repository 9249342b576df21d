/**
 * Parses files of variables (`fileKeyRef`) in the kubelet's strict form: `NAME='value'` on separate lines, with blank lines
 * and comments between them. A value is taken literally and may have several lines. Pure.
 */

/** Returns the value of `key`, or an empty string if the file does not set it. Throws for a syntax error up to the key. */
export function environmentFileValue(text: string, key: string): string {
  let at = 0;
  let line = 1;
  const fail = (problem: string): never => {
    throw new Error(`invalid environment variable format at line ${line}: ${problem}`);
  };
  while (at < text.length) {
    const end = endOfLine(text, at);
    const start = at + (/^[ \t]*/.exec(text.slice(at, end))?.[0].length ?? 0);
    const stated = text.slice(start, end).replace(/\r$/, '');
    if (stated === '' || stated.startsWith('#')) {
      at = end + 1;
      line += 1;
      continue;
    }
    const equals = stated.indexOf('=');
    if (equals === -1) fail("missing '='");
    const name = stated.slice(0, equals);
    if (name.trim() === '') fail('empty variable name');
    if (/[ \t]$/.test(name)) fail("whitespace before '=' is not allowed");
    const [first = ''] = stated.slice(equals + 1);
    if (first === ' ' || first === '\t') {
      // As in a shell, a blank after the equals sign ends the value, which is empty.
      if (name === key) return '';
      at = end + 1;
      line += 1;
      continue;
    }
    if (first !== "'") fail('value must be enclosed in single quotes');
    const opened = start + equals + 2;
    const closed = text.indexOf("'", opened);
    if (closed === -1) fail('unclosed single quote');
    const value = text.slice(opened, closed);
    const lineEnd = endOfLine(text, closed);
    line += value.split('\n').length - 1;
    if (!/^[ \t\r]*(?:#|$)/.test(text.slice(closed + 1, lineEnd))) fail('unexpected content after closing quote');
    if (name === key) return value.replaceAll('\r\n', '\n');
    at = lineEnd + 1;
    line += 1;
  }
  return '';
}

function endOfLine(text: string, from: number): number {
  const end = text.indexOf('\n', from);
  return end === -1 ? text.length : end;
}
