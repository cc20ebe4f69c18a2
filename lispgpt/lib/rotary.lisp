; Rotary positions: "RoFormer", Su et al. 2021; a head's halves are the two coordinates of its pairs.
(require-dialect arith math tensor)

; positions [rows], frequencies i -> turn per position (a function of numbers) -> angles [rows pairs]
; Frequencies are made while compiling and rounded once: at a far position, an f32 that is off by its last bit turns a
; pair by some thousandths more.
(defn rotary-angles [positions pairs frequency]
  (let [turns (map frequency (range pairs))
        turns (: turns (tensor-type [(count turns)] f32))]
    (tensor [n (dim positions 0) i pairs] (* (cast (at positions n) f32) (at turns i)))))

; theta^(-i / pairs), for the i-th of a head's pairs
(defn rotary-frequency [theta pairs]
  (let [step (- (/ (log theta) pairs))]
    (fn [i] (exp (* i step)))))

; Llama 3.1's way to a longer context: what turns less than `low` times in `original` positions is slowed by `factor`,
; what turns more than `high` times is not, and between them a share is
(defn slowed-frequency [frequency factor low high original]
  (fn [i]
    (let [f (frequency i)
          turns (* f (/ original (* 2 pi)))
          kept (max 0.0 (min 1.0 (/ (- turns low) (- high low))))]
      (* f (+ kept (/ (- 1.0 kept) factor))))))

; "YaRN", Peng et al. 2023: pairs that turn more than `fast` times in `original` positions keep their frequency, those
; that turn less than `slow` times are slowed by `factor`, and between them a share is
(defn yarn-frequency [theta pairs factor original fast slow whole]
  (let [plain (rotary-frequency theta pairs)
        pair-of (fn [turns] (/ (* pairs (log (/ original (* turns 2 pi)))) (log theta)))
        from (max 0 (if whole (quot (pair-of fast) 1) (pair-of fast)))
        to (min (- (* 2 pairs) 1) (if whole (ceil-div (pair-of slow) 1) (pair-of slow)))
        span (max 0.001 (- to from))]
    (fn [i]
      (let [slowed (max 0.0 (min 1.0 (/ (- i from) span)))]
        (* (plain i) (+ (- 1.0 slowed) (/ slowed factor)))))))

; What queries and keys are larger by, of a text that is `factor` times as long
(defn yarn-scale [factor share]
  (if (> factor 1.0) (+ 1.0 (* 0.1 share (log factor))) 1.0))

; What the positions of a program are turned by, as a part of its config, where the checkpoint may say it otherwise
; (`:rotary` in `hugging-face`): rope-type is "default", "dynamic" (which is that up to the length of training), "linear",
; "llama3", "yarn" or "longrope" (once "su"), and the others are what these need.
; (rotary-config 500000.0 "yarn"): what rope-theta and rope-type are where the checkpoint says nothing.
(defmacro rotary-config [& said]
  `(do
     (config rope-type ~(if (> (count said) 1) (nth said 1) "default")
             rope-theta ~(if (> (count said) 0) (nth said 0) 10000.0)
             rope-factor 0.0  rope-low 1.0  rope-high 4.0  rope-original 0
             rope-fast 32.0  rope-slow 1.0  rope-whole true  rope-attention 0.0  rope-mscale 0.0  rope-mscale-all 0.0
             rope-short []  rope-long []  rope-most 0)
     (if (long-factors?)
       (do (config long-after (first-length)) (state (long-text [batch] i32)))
       nil)))

; Whether long texts are turned by other factors than short ones
(defn long-factors? [] (or (= (configured "rope-type" "default") "su") (= (configured "rope-type" "default") "longrope")))

; The length of the first training's texts: where it is not said, that of all
(defn first-length []
  (let [[original most] [(configured "rope-original" 0) (configured "rope-most" 0)]]
    (cond (> original 0) original  (> most 0) most  :else (configured "context" 0))))

; How many times as long texts are since: where it is not said, as lengths are
(defn times-longer []
  (let [[factor most] [(configured "rope-factor" 0.0) (configured "rope-most" 0)]]
    (cond (!= factor 0.0) factor  (> most 0) (/ (* 1.0 most) (first-length))  :else 1.0)))

; The frequency of a head's i-th pair, by the program's config.
(defn configured-frequency [pairs]
  (let [kind (configured "rope-type" "default")
        theta (configured "rope-theta" 10000.0)
        [factor original] [(times-longer) (first-length)]
        plain (rotary-frequency theta pairs)]
    (cond
      (= kind "default") plain
      (= kind "dynamic") (if (> (configured "context" 0) (configured "rope-most" 0))
                           (error "with rope_type dynamic no context beyond max_position_embeddings is computed" kind)
                           plain)
      (= kind "linear") (fn [i] (/ (plain i) factor))
      (= kind "llama3") (slowed-frequency plain factor (configured "rope-low" 1.0) (configured "rope-high" 4.0) original)
      (= kind "yarn") (yarn-frequency theta pairs factor original (configured "rope-fast" 32.0)
                                      (configured "rope-slow" 1.0) (configured "rope-whole" true))
      (= kind "") (error "how this model's positions are turned has to be said: rope_type" kind)
      :else (error "rope-type is default, dynamic, linear, llama3 or yarn" kind))))

; "LongRoPE", Ding et al. 2024: every pair is slowed by a factor of its own, which is another for all rows of a text that
; is longer than those of the first training were.  Whether one is so is said by the state `long-text` (see decoding.py),
; and where nobody says it, by the position of a run's last row.
(defn long-angles [positions pairs original]
  (let [plain (rotary-frequency (configured "rope-theta" 10000.0) pairs)
        state (known-state "long-text")
        said (if state (read-state state) positions)
        rows (dim positions 0)
        each (: (quot rows (batch)) index)
        long? (fn [row]
                (let [sequence (quot row each)
                      last (at positions (+ (* sequence each) (- each (: 1 index))))
                      by-position (>= last (: original i32))]
                  (if state
                    (let [word (at said sequence)] (or (= word (: 1 i32)) (and (= word (: 0 i32)) by-position)))
                    by-position)))
        factor (fn [name pair]
                 (let [factors (configured name [])]
                   (fold (fn [found i] (select (= pair i) (nth factors i) found)) 1.0 (range (count factors)))))]
    (tensor [n rows i pairs]
      (let [pair (cast i i32)
            slowed (select (long? n) (factor "rope-long" pair) (factor "rope-short" pair))]
        (/ (* (cast (at positions n) f32) (plain (cast pair f32))) slowed)))))

; positions [rows], pairs -> a function that turns x [rows heads size] by its rows' positions, as the config says
(defn turning [positions pairs]
  (let [kind (configured "rope-type" "default")
        given (configured "rope-attention" 0.0)
        [factor original] [(times-longer) (first-length)]
        long (long-factors?)
        [m all] [(configured "rope-mscale" 0.0) (configured "rope-mscale-all" 0.0)]
        longer (cond (= kind "yarn") (if (= (* m all) 0.0) (yarn-scale factor 1.0)
                                       (/ (yarn-scale factor m) (yarn-scale factor all)))
                     (not long) 1.0
                     (> factor 1.0) (sqrt (+ 1.0 (/ (log factor) (log original))))
                     :else 1.0)
        scale (if (= given 0.0) longer given)
        angles (if long
                 (long-angles positions pairs original)
                 (rotary-angles positions pairs (configured-frequency pairs)))]
    (turning-through angles scale)))

; What DeepSeek's models multiply scores by beside that, as the program's config says
(defn longer-scores []
  (let [share (configured "rope-mscale-all" 0.0)]
    (if (or (= (configured "rope-type" "default") "default") (= share 0.0))
      1.0
      (square (yarn-scale (times-longer) share)))))

; As many pairs as a share of a head of this size has (config.json's partial_rotary_factor)
(defn turned-pairs [share size]
  (let [columns (quot (* share size) 1)]
    (if (= (mod columns 2) 0) (quot columns 2) (error "what of a head is turned is no whole number of pairs" columns))))

; `turning` by a frequency of one's own, i -> turn per position: (rotary-frequency 10000.0 pairs)
(defn turning-by [positions pairs frequency]
  (turning-through (rotary-angles positions pairs frequency)))

; `turning` through angles [rows pairs], by which what is turned becomes larger
(defn turning-through [angles & larger]
  (let [scale (if (> (count larger) 0) (nth larger 0) 1.0)
        scaled (fn [x] (if (= scale 1.0) x (* x scale)))
        [cosine sine] [(scaled (cos angles)) (scaled (sin angles))]]
    (fn [x] (rotate x cosine sine))))

; x [rows heads size] with its first `turned` columns, of which neighbours are pairs, in the order of halves: scores stay
; as they are where queries and keys both are so
(defn halves-first [x turned]
  (let [[n heads size] (shape x)
        pairs (quot turned 2)
        part (reshape (slice x [0 0 0] [n heads turned]) [n heads pairs 2])
        sorted (reshape (tensor [r n h heads p 2 i pairs] (at part r h i p)) [n heads turned])]
    (if (= turned size) sorted (insert sorted x [0 0 0] [n heads turned]))))

; x [rows heads size], cosine and sine [rows pairs] -> x with each pair of its first 2*pairs columns turned by its angle
(defn rotate [x cosine sine]
  (let [[n heads size] (shape x)
        turned (* 2 (dim cosine 1))]
    (if (= turned size)
      (rotate-all x cosine sine)
      (insert (rotate-all (slice x [0 0 0] [n heads turned]) cosine sine) x [0 0 0] [n heads turned]))))

(defn rotate-all [x cosine sine]
  (let [[n heads size] (shape x)
        half (divided "a head of" size 2 "halves")
        part (fn [p] (slice (reshape x [n heads 2 half]) [0 0 p 0] [n heads nil half]))
        [a b] [(part 0) (part 1)]]
    (reshape
      (tensor [r n h heads p 2 i half]
        (let [c (at cosine r i)
              s (at sine r i)]
          (select (= p 0)
                  (- (* (at a r h i) c) (* (at b r h i) s))
                  (+ (* (at b r h i) c) (* (at a r h i) s)))))
      [n heads size])))
