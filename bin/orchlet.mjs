/** What `import 'orchlet'` gives: the sources in a checkout, their JavaScript in an installed package. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';

const root = join(import.meta.dirname, '..');
const compiled = join(root, 'dist/package/controlplane/main.js');
const installed = root.includes('/node_modules/');
if (installed && !existsSync(compiled))
  throw new Error(`${root} was packed without its JavaScript: pack it with scripts/build-package`);
export const { startControlPlane } = await import(installed ? compiled : '../controlplane/main.ts');
