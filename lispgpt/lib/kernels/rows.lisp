; Rows: norms, softmax, sums and largest elements of rows, embeddings, and what elementwise ops make beside them.  A team
; of threads has a row of all results: each thread reads some vectors of it, and what a row is reduced to is the team's.
; On CPUs a block is one thread, which has one row after another.

(def most-threads 1024)         ; of a team,
(def beside-threads 512)        ; and of one whose row is long where there are rows for several blocks of a core
(def shared-threads 256)        ; of a block of several teams,
(def many-rows 4096)            ; where there are so many rows
(def unrolled 8)                ; vectors of a row that a thread has in registers: with more of them there are loops
(def early 2)                   ; vectors that it may have before the launches ahead are done
(def in-turns 4)                ; rows of a block that is one thread,
(def chains 4)                  ; and vectors of sums that it has beside each other
(def beside 2)                  ; blocks that a core is to hold with their rows: one computes while another waits

(defn up-to [n unit] (* unit (ceil-div n unit)))
(defn power-of-two [n from] (if (>= from n) from (power-of-two n (* 2 from))))
(defn gcd [a b] (if (= b 0) a (gcd b (mod a b))))
(defn each [f items] (map f items))

(def alone? (= (capability max-threads) 1))
(defn long? [r] (> (tile.longest-row r) (* most-threads unrolled (quot (capability vector-bytes) 4))))
(defn beside? [r] (and (long? r) (>= (tile.row-count r) (* 2 (capability cores)))))

; [threads teams bytes together]: threads of a team, and teams of a block; bytes of the elements by which vectors are as
; long as the widest load; and how many of a long row's a thread reads at once.
(defn teams-of [r]
  (if alone? [1 (gcd (tile.row-count r) in-turns) 4 chains] (teams-of-threads r)))
(defn teams-of-threads [r]
  (let [bytes (if (long? r) (tile.narrowest r) 4)
        longest (tile.longest-row r)
        vectors (ceil-div longest (tile.vector r longest bytes))
        lanes (capability subgroup-size)
        threads (min (if (beside? r) beside-threads most-threads) (capability max-threads) (up-to vectors lanes))
        few (power-of-two vectors 1)
        teams (if (and (<= vectors lanes) (>= (tile.row-count r) many-rows))
                (gcd (tile.row-count r) (quot shared-threads few))
                1)]
    [(if (> teams 1) few threads) teams bytes (if (beside? r) bytes 1)]))

(defn store-row [r x at together]
  (tile.over-row r x at (if (<= (tile.vectors r x) (if alone? 1 unrolled)) 0 together)
    (fn [which] (tile.store-numbers r (tile.numbers r x at which) x at which))))

(schedule rows [r]
  {:of rows  :takes (= (tile.shares r) 0)}
  (let [[threads teams bytes together] (teams-of r)
        at (tile.row-task r threads teams bytes together)
        results (tile.row-results r)
        kept (if (and (not alone?) (beside? r)) (tile.repeated r beside) nil)]
    (each (fn [x] (if (and (not alone?) (<= (tile.vectors r x) early)) (tile.ask-early r x at) nil)) results)
    (if (not (= kept nil)) (tile.keep r kept at) nil)
    (each (fn [x] (store-row r x at (if alone? 1 together))) results)))

; Matrices in blocks of few bits, which become BF16 ahead of products of many rows: a thread has as many numbers as it
; stores at once, and has read and widened them by the time that the launches ahead are done.
(def short-bytes 2)             ; of a number
(schedule widen [r]
  {:of rows  :takes (tile.in-blocks? r)}
  (let [longest (tile.longest-row r)
        vectors (ceil-div longest (tile.vector r longest short-bytes))
        threads (min most-threads (capability max-threads) (up-to vectors (capability subgroup-size)))
        at (tile.row-task r threads 1 short-bytes 1)]
    (each (fn [x]
            (tile.ask-early r x at)
            (tile.over-row r x at 0 (fn [which] (tile.store-numbers r (tile.numbers r x at which) x at which))))
          (tile.row-results r))))

; Rows whose columns are summed, too: a block takes those of one share one after another, some read together, so that
; memory has as much to do as where each block has a row of its own; a thread has one vector of every row.
(def resident-blocks 4)         ; of a core, for which registers are divided where there are no more of them

(defn sum-threads [r]
  (let [columns (tile.longest-row r)]
    (up-to (ceil-div columns (tile.vector r columns (tile.widest r))) (capability subgroup-size))))

(schedule column-sums [r]
  {:of rows
   :takes (and (> (tile.shares r) 0) (<= (sum-threads r) (capability max-threads)))}
  (let [rows (tile.share-rows r)
        together (if (= (mod rows 2) 0) 2 1)
        [share place] (tile.share-task r (sum-threads r) (tile.widest r))
        results (tile.row-results r)
        resident (ceil-div (quot (tile.row-count r) rows) (capability cores))]
    (if (<= resident resident-blocks) (tile.resident r resident) nil)
    (each (fn [x] (tile.ask r x [0 0])) (tile.same-rows r))
    (let [sums (tile.sum-rows r rows together
                 (fn [number sums]
                   (let [ats (map (fn [i] [(+ (* share rows) number i) place]) (range together))]
                     (each (fn [at] (each (fn [x] (tile.ask r x at)) (concat results (tile.summed r)))) ats)
                     (let [found (fold (fn [sums at]
                                         (each (fn [x] (store-row r x at 1)) results)
                                         (tile.add-rows r sums at))
                                       sums ats)]
                       (if (tile.row-reduces? r) (tile.barrier r) nil)  ; before the next round's reductions
                       found))))]
      (tile.store-sums r sums [share place]))))
