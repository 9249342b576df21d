/** The CEL library of semantic versions (semver.org, version 2): `semver('1.2.3').isLessThan(semver('1.10.0'))`. */
import { quoteText } from '../../meta/quote.ts';
import { fn, type FunctionRow, method } from '../functions.ts';
import { bool, int, opaque, string } from '../types.ts';
import { CelError, OpaqueValue } from '../values.ts';

class Semver extends OpaqueValue {
  readonly typeName = 'kubernetes.Semver';
  readonly numbers: readonly [bigint, bigint, bigint];
  readonly prerelease: readonly string[];
  constructor(numbers: readonly [bigint, bigint, bigint], prerelease: readonly string[]) {
    super();
    this.numbers = numbers;
    this.prerelease = prerelease;
  }
  equals(other: OpaqueValue): boolean {
    return other instanceof Semver && compareVersions(this, other) === 0;
  }
}

const semver = opaque('kubernetes.Semver');
const VERSION = /^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?$/;

function normalized(text: string): string {
  const [, core = '', rest = ''] = /^v?([0-9.]+)(.*)$/s.exec(text.trim()) ?? [];
  const parts = core.split('.').map((part) => part.replace(/^0+(?=\d)/, ''));
  while (parts.length < 3) parts.push('0');
  return parts.join('.') + rest;
}

function semverOf(text: string): Semver | undefined {
  const found = VERSION.exec(text);
  if (found === null) return undefined;
  const [, major = '0', minor = '0', patch = '0', prerelease] = found;
  return new Semver([BigInt(major), BigInt(minor), BigInt(patch)], prerelease?.split('.') ?? []);
}

/** Returns the value of a semantic version, or `undefined` if the text is not one. */
export const versionValue = (text: string): OpaqueValue | undefined => semverOf(text);

function compareVersions(a: Semver, b: Semver): number {
  for (let index = 0; index < 3; index += 1) {
    const [left = 0n, right = 0n] = [a.numbers[index], b.numbers[index]];
    if (left !== right) return left < right ? -1 : 1;
  }
  if (a.prerelease.length === 0 || b.prerelease.length === 0) return b.prerelease.length - a.prerelease.length;
  for (let index = 0; index < Math.max(a.prerelease.length, b.prerelease.length); index += 1) {
    const [left, right] = [a.prerelease[index], b.prerelease[index]];
    if (left === undefined || right === undefined) return left === undefined ? -1 : 1;
    if (left === right) continue;
    const [x, y] = [/^\d+$/.test(left), /^\d+$/.test(right)];
    if (x !== y) return x ? -1 : 1;
    return (x ? Number(left) < Number(right) : left < right) ? -1 : 1;
  }
  return 0;
}

const parsedVersion = (text: string): Semver => {
  const found = semverOf(text);
  if (found === undefined)
    throw new CelError(`semver parse error during conversion from string: Invalid version ${quoteText(text)}`);
  return found;
};

/** The overloads of the library `semver`. */
export const versions: readonly FunctionRow[] = [
  fn('semver', [string], semver, parsedVersion),
  fn('semver', [string, bool], semver, (text: string, lenient: boolean) =>
    parsedVersion(lenient ? normalized(text) : text),
  ),
  fn('isSemver', [string], bool, (text: string) => semverOf(text) !== undefined),
  fn(
    'isSemver',
    [string, bool],
    bool,
    (text: string, lenient: boolean) => semverOf(lenient ? normalized(text) : text) !== undefined,
  ),
  method('major', [semver], int, ({ numbers }: Semver) => numbers[0]),
  method('minor', [semver], int, ({ numbers }: Semver) => numbers[1]),
  method('patch', [semver], int, ({ numbers }: Semver) => numbers[2]),
  method('isGreaterThan', [semver, semver], bool, (a: Semver, b: Semver) => compareVersions(a, b) > 0),
  method('isLessThan', [semver, semver], bool, (a: Semver, b: Semver) => compareVersions(a, b) < 0),
  method('compareTo', [semver, semver], int, (a: Semver, b: Semver) => BigInt(Math.sign(compareVersions(a, b)))),
];
