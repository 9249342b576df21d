/** `build-program.ts DIR`: writes the command, a Node.js without its symbols and the bundled program to DIR. */
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { withoutSymbols } from './elf-symbols.ts';
import { bundleProgram } from './program-bundle.ts';

const [directory] = process.argv.slice(2);
if (directory === undefined) throw new Error('usage: scripts/build-program DIR');
const target = resolve(directory);

mkdirSync(join(target, 'bin'), { recursive: true });
cpSync(join(import.meta.dirname, '../bin/orchlet'), join(target, 'bin/orchlet'));
// In a checkout, bin/node is a script that finds the executable.
writeFileSync(join(target, 'bin/node'), withoutSymbols(readFileSync(process.execPath)), { mode: 0o755 });
await bundleProgram(join(target, 'dist/program'), {
  entries: { main: 'cli/main.ts' },
  addons: [`linux-${process.arch}`],
  node: 'node26',
  compiled: true,
});
