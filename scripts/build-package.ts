/** Prints the package.json of the npm package: that of this checkout without what an installed package does not use. */
import { readFileSync } from 'node:fs';

/** Types alone; whoever compiles against ours installs it, and nobody else. */
const TYPES = '@kubernetes/client-node';

const [file = 'package.json'] = process.argv.slice(2);
const {
  scripts: _scripts,
  devDependencies: _development,
  optionalDependencies: _runtimes,
  ...manifest
} = JSON.parse(readFileSync(file, 'utf8')) as Record<string, unknown> & {
  readonly dependencies: Readonly<Record<string, string>>;
};
const { [TYPES]: types, ...dependencies } = manifest.dependencies;
const packed = {
  ...manifest,
  dependencies,
  peerDependencies: { [TYPES]: types },
  peerDependenciesMeta: { [TYPES]: { optional: true } },
};
process.stdout.write(`${JSON.stringify(packed, null, 2)}\n`);
