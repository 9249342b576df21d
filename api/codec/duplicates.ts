/**
 * The messages about duplicate keys in a body. JSON has paths (`metadata.name`), YAML a line (`line 7: key "k" already set in
 * map`); field validation warns with these messages, or refuses the body with them.
 */

/** One text for each warning. */
export function duplicateWarnings(duplicates: readonly string[]): string[] {
  return duplicates.map((entry) => (isYamlLine(entry) ? entry : `duplicate field "${entry}"`));
}

/** The parts of a `strict decoding error`; the caller joins them with those of unknown fields by `, `. */
export function duplicateErrors(duplicates: readonly string[]): string[] {
  const lines = duplicates.filter(isYamlLine);
  const paths = duplicates.filter((entry) => !isYamlLine(entry)).map((entry) => `duplicate field "${entry}"`);
  if (lines.length === 0) return paths;
  return [`yaml: unmarshal errors:\n${lines.map((line) => `  ${line}`).join('\n')}`, ...paths];
}

function isYamlLine(entry: string): boolean {
  return /^line \d+: key /.test(entry);
}
