/** Nested hyperparameters and settings by names with dots. */

export function flat(values: Record<string, unknown>, prefix = ''): Record<string, unknown> {
  const found: Record<string, unknown> = {}
  for (const [name, value] of Object.entries(values)) {
    const isGroup =
      typeof value === 'object' && value !== null && !Array.isArray(value) && Object.keys(value).length > 0
    if (isGroup) Object.assign(found, flat(value as Record<string, unknown>, `${prefix}${name}.`))
    else found[`${prefix}${name}`] = value
  }
  return found
}
