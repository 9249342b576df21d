/** Prints the package.json of the npm package: that of this checkout without its tools, and without a Node.js, which its user has. */
import { readFileSync } from 'node:fs';

const [file = 'package.json'] = process.argv.slice(2);
const {
  scripts: _scripts,
  devDependencies: _tools,
  optionalDependencies: _runtimes,
  ...packed
} = JSON.parse(readFileSync(file, 'utf8')) as Readonly<Record<string, unknown>>;
process.stdout.write(`${JSON.stringify(packed, null, 2)}\n`);
