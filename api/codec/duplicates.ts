/**
 * Formats the messages about duplicate keys in a body. Keys of JSON have paths (`metadata.name`), and keys of YAML have lines
 * (`line 7: key "k" already set in map`).
 */

/** Returns one text for each warning. */
export function duplicateWarnings(duplicates: readonly string[]): string[] {
  return duplicates.map((entry) => (isYamlLine(entry) ? entry : `duplicate field "${entry}"`));
}

/** Returns the parts of a `strict decoding error`. The caller joins them and those of unknown fields with `, `. */
export function duplicateErrors(duplicates: readonly string[]): string[] {
  const lines = duplicates.filter(isYamlLine);
  const paths = duplicates.filter((entry) => !isYamlLine(entry)).map((entry) => `duplicate field "${entry}"`);
  if (lines.length === 0) return paths;
  return [`yaml: unmarshal errors:\n${lines.map((line) => `  ${line}`).join('\n')}`, ...paths];
}

function isYamlLine(entry: string): boolean {
  return /^line \d+: key /.test(entry);
}
