import { describe, expect, it } from 'vitest'
import { csvCell, csvOf, csvOfCurves, fileName } from './csv'

describe('csvOf', () => {
  it('keeps all digits, leaves empty what is missing, and quotes what has to be', () => {
    const rows = [
      [1, 0.1 + 0.2, 2n ** 62n, null, undefined],
      ['a "b",\nc', { a: [1, 2n ** 62n] }, true, 'NaN', 'x'],
    ]
    expect(csvOf(['id', 'best, of all', 'seed', 'x', 'y'], rows)).toBe(
      'id,"best, of all",seed,x,y\r\n' +
        '1,0.30000000000000004,4611686018427387904,,\r\n' +
        '"a ""b"",\nc","{""a"":[1,4611686018427387904]}",true,NaN,x\r\n',
    )
  })

  it('has no text that a spreadsheet runs', () => {
    expect(csvCell('=1+1')).toBe("'=1+1")
    expect(csvCell('@SUM(A1)')).toBe("'@SUM(A1)")
    expect(csvCell('-x')).toBe("'-x")
    expect(csvCell('+\t')).toBe("'+\t")
    expect(csvCell('-1e-3')).toBe('-1e-3')
    expect(csvCell('-Infinity')).toBe('-Infinity')
  })
})

describe('csvOfCurves', () => {
  it('has a row for each place and a column for each curve', () => {
    const curves = {
      trials: ['1-1', '1-2'],
      x: [10, 20],
      y: [
        [0.5, null],
        [null, 1 / 3],
      ],
    }
    expect(csvOfCurves(curves, 'batches')).toBe('batches,1-1,1-2\r\n10,0.5,\r\n20,,0.3333333333333333\r\n')
  })
})

describe('fileName', () => {
  it('has no character that a system refuses', () => {
    expect(fileName(['experiment', 3, 'val/loss: a?'], 'csv')).toBe('experiment-3-val-loss-a.csv')
    expect(fileName(['../..'], 'csv')).toBe('tenuto.csv')
    expect(fileName(['größe'], 'png')).toBe('größe.png')
  })
})
