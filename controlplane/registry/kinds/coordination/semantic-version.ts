/** Parses and compares the semantic versions (semver.org 2.0.0) of lease candidates. */

export interface SemanticVersion {
  readonly numbers: readonly number[];
  readonly preRelease: readonly string[];
}

const NUMBER = '(0|[1-9][0-9]*)';
const PRE = '(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)';
const VERSION = new RegExp(
  `^${NUMBER}\\.${NUMBER}\\.${NUMBER}(?:-(${PRE}(?:\\.${PRE})*))?(?:\\+[0-9A-Za-z-]+(?:\\.[0-9A-Za-z-]+)*)?$`,
);

/** Parses a version. Returns `undefined` if the text is not a complete one. */
export function parseVersion(text: string): SemanticVersion | undefined {
  const match = VERSION.exec(text);
  if (match === null) return undefined;
  return { numbers: match.slice(1, 4).map(Number), preRelease: match[4]?.split('.') ?? [] };
}

/** Compares two versions. The result is negative if `a` is lower. Build metadata is ignored. */
export function compareVersions(a: SemanticVersion, b: SemanticVersion): number {
  for (const [index, number] of a.numbers.entries()) {
    const difference = number - (b.numbers[index] ?? 0);
    if (difference !== 0) return difference;
  }
  // A version without a pre-release is higher than one with a pre-release.
  if (a.preRelease.length === 0 || b.preRelease.length === 0) return b.preRelease.length - a.preRelease.length;
  for (const [index, part] of a.preRelease.entries()) {
    const other = b.preRelease[index];
    if (other === undefined) return 1;
    const order = comparePart(part, other);
    if (order !== 0) return order;
  }
  return a.preRelease.length - b.preRelease.length;
}

function comparePart(a: string, b: string): number {
  const [isNumberA, isNumberB] = [/^\d+$/.test(a), /^\d+$/.test(b)];
  if (isNumberA && isNumberB) return Number(a) - Number(b);
  if (isNumberA !== isNumberB) return isNumberA ? -1 : 1;
  if (a === b) return 0;
  return a < b ? -1 : 1;
}
