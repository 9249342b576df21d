/** Implements the CEL library of semantic versions (semver.org, version 2): `semver('1.2.3').isLessThan(semver('1.10.0'))`. */
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
/** Completes a text that is read leniently: without the first `v` and leading zeros, and with three numbers. */
function normalized(text: string): string {
  const [major = '', minor, ...further] = text.replace(/^v/, '').split('.');
  const parts = [
    major,
    ...(minor === undefined ? [] : [minor]),
    ...(further.length === 0 ? [] : [further.join('.')]),
  ].map((part) => part.replace(/^0+(?=\d)/, ''));
  if (parts.length < 3 && /[+-]/.test(parts.at(-1) ?? ''))
    throw new CelError('short version cannot contain PreRelease/Build meta data');
  while (parts.length < 3) parts.push('0');
  return parts.join('.');
}

/** Returns the number of a part, or throws in the words of the parser that kube-apiserver uses. */
function numberOf(part: string, text: string): bigint {
  const what = part === 'Numeric PreRelease' ? `${part} version` : `${part} number`;
  if (!/^\d+$/.test(text))
    throw new CelError(`Invalid character(s) found in ${part.toLowerCase()} number ${quoteText(text)}`);
  if (/^0\d/.test(text)) throw new CelError(`${what} must not contain leading zeroes ${quoteText(text)}`);
  const value = BigInt(text);
  if (BigInt.asUintN(64, value) !== value)
    throw new CelError(`strconv.ParseUint: parsing ${quoteText(text)}: value out of range`);
  return value;
}

/** Parses a semantic version. Throws a `CelError` for another text. */
function parsedVersion(text: string): Semver {
  if (text === '') throw new CelError('Version string empty');
  const [major, minor, ...further] = text.split('.');
  if (major === undefined || minor === undefined || further.length === 0)
    throw new CelError('No Major.Minor.Patch elements found');
  const numbers = [numberOf('Major', major), numberOf('Minor', minor)] as const;
  const tail = further.join('.');
  const [, patch = '', prerelease, build] = /^([^+-]*)(?:-([^+]*))?(?:\+(.*))?$/s.exec(tail) ?? [];
  const third = numberOf('Patch', patch);
  for (const part of prerelease?.split('.') ?? []) checkPrerelease(part);
  for (const part of build?.split('.') ?? []) {
    if (part === '') throw new CelError('Build meta data is empty');
    if (!/^[0-9A-Za-z-]+$/.test(part))
      throw new CelError(`Invalid character(s) found in build meta data ${quoteText(part)}`);
  }
  return new Semver([...numbers, third], prerelease?.split('.') ?? []);
}

function checkPrerelease(part: string): void {
  if (part === '') throw new CelError('Prerelease is empty');
  if (/^\d+$/.test(part)) numberOf('Numeric PreRelease', part);
  else if (!/^[0-9A-Za-z-]+$/.test(part))
    throw new CelError(`Invalid character(s) found in prerelease ${quoteText(part)}`);
}

function semverOf(text: string, lenient = false): Semver | undefined {
  try {
    return parsedVersion(lenient ? normalized(text) : text);
  } catch (error) {
    if (error instanceof CelError) return undefined;
    throw error;
  }
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
    return (x ? BigInt(left) < BigInt(right) : left < right) ? -1 : 1;
  }
  return 0;
}

/** The overloads of the library `semver`. */
export const versions: readonly FunctionRow[] = [
  fn('semver', [string], semver, parsedVersion),
  fn('semver', [string, bool], semver, (text: string, lenient: boolean) =>
    parsedVersion(lenient ? normalized(text) : text),
  ),
  fn('isSemver', [string], bool, (text: string) => semverOf(text) !== undefined),
  fn('isSemver', [string, bool], bool, (text: string, lenient: boolean) => semverOf(text, lenient) !== undefined),
  method('major', [semver], int, ({ numbers }: Semver) => numbers[0]),
  method('minor', [semver], int, ({ numbers }: Semver) => numbers[1]),
  method('patch', [semver], int, ({ numbers }: Semver) => numbers[2]),
  method('isGreaterThan', [semver, semver], bool, (a: Semver, b: Semver) => compareVersions(a, b) > 0),
  method('isLessThan', [semver, semver], bool, (a: Semver, b: Semver) => compareVersions(a, b) < 0),
  method('compareTo', [semver, semver], int, (a: Semver, b: Semver) => BigInt(Math.sign(compareVersions(a, b)))),
];
